// SPDX-License-Identifier: Apache-2.0
// Reads the records of TFRecord files, one file after the other.
#ifndef TPU_ESTIMATOR_EMBEDDING_RECORD_FILES_H_
#define TPU_ESTIMATOR_EMBEDDING_RECORD_FILES_H_

#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/lib/io/record_reader.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"

namespace tpu_estimator_embedding {

struct FilesOfRecords {
  std::vector<tensorflow::tstring> filenames;
  tensorflow::tstring compression_type;  // as TFRecordDataset takes it
  int64_t buffer_size = 0;               // bytes; 0: no buffer
};

// Where the next record starts. In a compressed file it is the offset in what is uncompressed.
struct RecordPosition {
  int64_t file = 0;
  int64_t offset = 0;
};

class RecordFilesReader {
 public:
  explicit RecordFilesReader(const FilesOfRecords& files) : files_(files) {}

  // Appends up to `count` records; fewer mean that no file is left. As with TFRecordDataset, the
  // next call starts with the next file after a damaged one, and tries a file again that could not
  // be opened.
  absl::Status Read(tensorflow::Env* env, int64_t count,
                    std::vector<tensorflow::tstring>* records) {
    while (static_cast<int64_t>(records->size()) < count && HasFile()) {
      if (!reader_) TF_RETURN_IF_ERROR(Open(env));
      const absl::Status status = ReadRecord(records);
      if (status.ok()) continue;
      Seek({position_.file + 1, 0});
      if (!absl::IsOutOfRange(status)) return status;
    }
    return absl::OkStatus();
  }

  RecordPosition position() const {
    if (!reader_) return position_;
    return {position_.file, static_cast<int64_t>(reader_->TellOffset())};
  }

  void Seek(RecordPosition position) {
    reader_.reset();  // it reads from the file
    file_.reset();
    position_ = position;
  }

 private:
  bool HasFile() const {
    return position_.file < static_cast<int64_t>(files_.filenames.size());
  }

  absl::Status ReadRecord(std::vector<tensorflow::tstring>* records) {
    tensorflow::tstring record;
    TF_RETURN_IF_ERROR(reader_->ReadRecord(&record));
    records->push_back(std::move(record));
    return absl::OkStatus();
  }

  absl::Status Open(tensorflow::Env* env) {
    const std::string name(files_.filenames[position_.file]);
    TF_RETURN_IF_ERROR(CheckSize(env, name));
    TF_RETURN_IF_ERROR(env->NewRandomAccessFile(name, &file_));
    auto options = tensorflow::io::RecordReaderOptions::CreateRecordReaderOptions(
        std::string(files_.compression_type));
    options.buffer_size = files_.buffer_size;
    reader_ = std::make_unique<tensorflow::io::SequentialRecordReader>(file_.get(), options);
    const absl::Status status = reader_->SeekOffset(position_.offset);
    if (!status.ok()) reader_.reset();  // or the next call would continue at another record
    return status;
  }

  // A restored position beyond the end would look like the end of the file. How long the contents
  // of a compressed file are is not known.
  absl::Status CheckSize(tensorflow::Env* env, const std::string& name) const {
    if (position_.offset == 0 || !files_.compression_type.empty()) return absl::OkStatus();
    tensorflow::uint64 size;
    TF_RETURN_IF_ERROR(env->GetFileSize(name, &size));
    if (position_.offset <= static_cast<int64_t>(size)) return absl::OkStatus();
    return tensorflow::errors::DataLoss("Cannot continue at byte ", position_.offset, " of ", name,
                                        ", which has only ", size,
                                        " bytes. Restore the file, or start the input again.");
  }

  const FilesOfRecords& files_;
  RecordPosition position_;  // of a file that is not open
  std::unique_ptr<tensorflow::RandomAccessFile> file_;
  std::unique_ptr<tensorflow::io::SequentialRecordReader> reader_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_RECORD_FILES_H_
