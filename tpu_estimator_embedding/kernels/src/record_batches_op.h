// SPDX-License-Identifier: Apache-2.0
// A dataset of batches of records. TensorFlow's own passes every record through two iterators as
// a tensor; this one reads all records of a batch into one tensor.
#ifndef TPU_ESTIMATOR_EMBEDDING_RECORD_BATCHES_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_RECORD_BATCHES_OP_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attribute_checks.h"
#include "record_files.h"
#include "tensorflow/core/framework/dataset.h"

namespace tpu_estimator_embedding {

class RecordBatchesDataset : public tensorflow::data::DatasetBase {
 public:
  RecordBatchesDataset(tensorflow::OpKernelContext* context, FilesOfRecords files,
                       int64_t batch_size, bool drop_remainder)
      : DatasetBase(tensorflow::data::DatasetContext(context)),
        files_(std::move(files)),
        batch_size_(batch_size),
        drop_remainder_(drop_remainder),
        shapes_({tensorflow::PartialTensorShape({drop_remainder ? batch_size : -1})}) {}

  const tensorflow::DataTypeVector& output_dtypes() const override { return types_; }
  const std::vector<tensorflow::PartialTensorShape>& output_shapes() const override {
    return shapes_;
  }
  std::string DebugString() const override {
    return "TpuEmbeddingRecordBatchesDatasetOp::Dataset";
  }
  absl::Status InputDatasets(std::vector<const DatasetBase*>*) const override {
    return absl::OkStatus();
  }
  absl::Status CheckExternalState() const override { return absl::OkStatus(); }

 protected:
  std::unique_ptr<tensorflow::data::IteratorBase> MakeIteratorInternal(
      const std::string& prefix) const override {
    return std::make_unique<Iterator>(Iterator::Params{this, prefix + "::RecordBatches"});
  }

  absl::Status AsGraphDefInternal(tensorflow::data::SerializationContext*,
                                  DatasetGraphDefBuilder* builder,
                                  tensorflow::Node** output) const override {
    tensorflow::Node *filenames, *compression_type, *buffer_size, *batch_size, *drop_remainder;
    TF_RETURN_IF_ERROR(builder->AddVector(files_.filenames, &filenames));
    TF_RETURN_IF_ERROR(builder->AddScalar(files_.compression_type, &compression_type));
    TF_RETURN_IF_ERROR(builder->AddScalar(files_.buffer_size, &buffer_size));
    TF_RETURN_IF_ERROR(builder->AddScalar(batch_size_, &batch_size));
    TF_RETURN_IF_ERROR(builder->AddScalar(drop_remainder_, &drop_remainder));
    return builder->AddDataset(
        this, {filenames, compression_type, buffer_size, batch_size, drop_remainder}, output);
  }

 private:
  class Iterator : public tensorflow::data::DatasetIterator<RecordBatchesDataset> {
   public:
    explicit Iterator(const Params& params)
        : DatasetIterator<RecordBatchesDataset>(params), reader_(params.dataset->files_) {}

   protected:
    absl::Status GetNextInternal(tensorflow::data::IteratorContext* context,
                                 std::vector<tensorflow::Tensor>* out_tensors,
                                 bool* end_of_sequence) override {
      const int64_t batch_size = dataset()->batch_size_;
      std::vector<tensorflow::tstring> records;
      tensorflow::mutex_lock lock(mutex_);
      TF_RETURN_IF_ERROR(reader_.Read(context->env(), batch_size, &records));
      const int64_t least = dataset()->drop_remainder_ ? batch_size : 1;
      *end_of_sequence = static_cast<int64_t>(records.size()) < least;
      if (*end_of_sequence) return absl::OkStatus();
      out_tensors->emplace_back(context->allocator({}), tensorflow::DT_STRING,
                                tensorflow::TensorShape({static_cast<int64_t>(records.size())}));
      std::move(records.begin(), records.end(),
                out_tensors->back().flat<tensorflow::tstring>().data());
      return absl::OkStatus();
    }

    std::shared_ptr<tensorflow::data::model::Node> CreateNode(
        tensorflow::data::IteratorContext*,
        tensorflow::data::model::Node::Args arguments) const override {
      return tensorflow::data::model::MakeSourceNode(std::move(arguments));
    }

    absl::Status SaveInternal(tensorflow::data::SerializationContext*,
                              tensorflow::data::IteratorStateWriter* writer) override {
      tensorflow::mutex_lock lock(mutex_);
      const RecordPosition position = reader_.position();
      TF_RETURN_IF_ERROR(writer->WriteScalar(prefix(), "file", position.file));
      return writer->WriteScalar(prefix(), "offset", position.offset);
    }

    absl::Status RestoreInternal(tensorflow::data::IteratorContext*,
                                 tensorflow::data::IteratorStateReader* saved) override {
      tensorflow::mutex_lock lock(mutex_);
      int64_t file, offset;
      TF_RETURN_IF_ERROR(saved->ReadScalar(prefix(), "file", &file));
      TF_RETURN_IF_ERROR(saved->ReadScalar(prefix(), "offset", &offset));
      reader_.Seek({file, offset});
      return absl::OkStatus();
    }

   private:
    tensorflow::mutex mutex_;
    RecordFilesReader reader_;
  };

  const FilesOfRecords files_;
  const int64_t batch_size_;
  const bool drop_remainder_;
  const tensorflow::DataTypeVector types_{tensorflow::DT_STRING};
  const std::vector<tensorflow::PartialTensorShape> shapes_;
};

class RecordBatchesDatasetOp : public tensorflow::data::DatasetOpKernel {
 public:
  using DatasetOpKernel::DatasetOpKernel;

 protected:
  void MakeDataset(tensorflow::OpKernelContext* context,
                   tensorflow::data::DatasetBase** output) override {
    FilesOfRecords files;
    int64_t batch_size;
    bool drop_remainder;
    const tensorflow::Tensor* filenames;
    OP_REQUIRES_OK(context, context->input("filenames", &filenames));
    OP_REQUIRES_OK(context, CheckDims("filenames", *filenames, 1, 1));
    const auto names = filenames->flat<tensorflow::tstring>();
    files.filenames.assign(names.data(), names.data() + names.size());
    OP_REQUIRES_OK(context, Scalar(context, "compression_type", &files.compression_type));
    OP_REQUIRES_OK(context, Scalar(context, "buffer_size", &files.buffer_size));
    OP_REQUIRES_OK(context, Scalar(context, "batch_size", &batch_size));
    OP_REQUIRES_OK(context, Scalar(context, "drop_remainder", &drop_remainder));
    OP_REQUIRES(context, batch_size > 0,
                absl::InvalidArgumentError(absl::StrCat(
                    "Batch size must be greater than zero. `batch_size` is ", batch_size, ".")));
    OP_REQUIRES(context, files.buffer_size >= 0,
                absl::InvalidArgumentError(absl::StrCat(
                    "`buffer_size` must be >= 0 (0 == no buffering), got ", files.buffer_size,
                    ".")));
    *output = new RecordBatchesDataset(context, std::move(files), batch_size, drop_remainder);
  }

 private:
  template <class T>
  static absl::Status Scalar(tensorflow::OpKernelContext* context, const char* name, T* value) {
    return tensorflow::data::ParseScalarArgument<T>(context, name, value);
  }
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_RECORD_BATCHES_OP_H_
