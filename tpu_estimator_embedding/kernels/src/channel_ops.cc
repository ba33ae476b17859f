// SPDX-License-Identifier: Apache-2.0
// Channels, their ops, and the functions by which Python watches them.
#include <atomic>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "channels.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/env.h"

namespace tpu_estimator_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::shape_inference::InferenceContext;

absl::Status OutputShapes(InferenceContext* context) {
  std::vector<tensorflow::PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(context->GetAttr("shapes", &shapes));
  if (static_cast<int>(shapes.size()) != context->num_outputs()) {
    return absl::InvalidArgumentError(absl::StrCat("A channel has ", context->num_outputs(),
                                               " dtypes and ", shapes.size(), " shapes."));
  }
  for (int i = 0; i < context->num_outputs(); ++i) {
    tensorflow::shape_inference::ShapeHandle shape;
    TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(shapes[i], &shape));
    context->set_output(i, shape);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tpu_estimator_embedding

// Adds an element to a channel; waits while the channel is full.
REGISTER_OP("TpuEmbeddingChannelPut")
    .Input("values: dtypes")
    .Attr("dtypes: list(type) >= 0")
    .Attr("channel: string")
    .Attr("capacity: int >= 1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

// Removes the first element of a channel; waits while the channel is empty.
REGISTER_OP("TpuEmbeddingChannelTake")
    .Output("values: dtypes")
    .Attr("dtypes: list(type) >= 0")
    .Attr("shapes: list(shape) >= 0")
    .Attr("channel: string")
    .SetIsStateful()
    .SetShapeFn(tpu_estimator_embedding::OutputShapes);

// The number of elements of a channel.
REGISTER_OP("TpuEmbeddingChannelSize")
    .Output("size: int32")
    .Attr("channel: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

// Empties all channels of the process; ops that wait there fail.
REGISTER_OP("TpuEmbeddingResetChannels")
    .Attr("reason: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

namespace tpu_estimator_embedding {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Channel>> channels;
  std::atomic<bool> is_interrupted{false};
};

// Never destroyed: threads of TensorFlow use it until the process ends.
Registry& TheRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

absl::Status Interrupted(const std::string& channel) {
  return absl::CancelledError(absl::StrCat("Interrupted at the ", channel, "."));
}

void Complete(const std::shared_ptr<Wait>& wait, const absl::Status& status) {
  // If the step is being cancelled, its callback finds that the wait is gone.
  if (wait->cancellation != nullptr) wait->cancellation->TryDeregisterCallback(wait->token);
  wait->done(status, std::move(wait->element));
}

std::string Signature(const tensorflow::DataTypeVector& dtypes,
                      const std::vector<tensorflow::PartialTensorShape>& shapes) {
  std::string text;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    text += (i ? ", " : "") + tensorflow::DataTypeString(dtypes[i]) + " " + shapes[i].DebugString();
  }
  return "(" + text + ")";
}

std::string Signature(const Element& element) {
  tensorflow::DataTypeVector dtypes;
  std::vector<tensorflow::PartialTensorShape> shapes;
  for (const tensorflow::Tensor& tensor : element) {
    dtypes.push_back(tensor.dtype());
    shapes.emplace_back(tensor.shape());
  }
  return Signature(dtypes, shapes);
}

}  // namespace

void Channel::Add(End end, int64_t capacity, std::shared_ptr<Wait> wait) {
  Waits completed;
  absl::Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (end == End::kPut) capacity_ = capacity;
    if (TheRegistry().is_interrupted) {
      status = Interrupted(name_);
    } else if (wait->cancellation != nullptr) {
      wait->token = wait->cancellation->get_cancellation_token();
      auto self = shared_from_this();
      // Registered under the lock, so that the callback finds the wait in the channel.
      if (!wait->cancellation->RegisterCallback(
              wait->token, [self, end, wait] { self->Cancel(end, wait.get()); })) {
        wait->cancellation = nullptr;
        status = absl::CancelledError("The run was cancelled.");
      }
    }
    if (status.ok()) {
      wait->since = tensorflow::Env::Default()->NowMicros();
      waits(end).push_back(wait);
      Match(&completed);
    } else {
      wait->cancellation = nullptr;
    }
  }
  if (!status.ok()) Complete(wait, status);
  for (const auto& finished : completed) Complete(finished, absl::OkStatus());
}

void Channel::Match(Waits* completed) {
  for (bool moved = true; moved;) {
    moved = false;
    if (!puts_.empty() && static_cast<int64_t>(elements_.size()) < capacity_) {
      elements_.push_back(std::move(puts_.front()->element));
      puts_.front()->element.clear();
      completed->push_back(puts_.front());
      puts_.pop_front();
      moved = true;
    }
    if (!takes_.empty() && !elements_.empty()) {
      takes_.front()->element = std::move(elements_.front());
      elements_.pop_front();
      completed->push_back(takes_.front());
      takes_.pop_front();
      moved = true;
    }
  }
}

void Channel::Cancel(End end, const Wait* wait) {
  std::shared_ptr<Wait> found;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Waits& all = waits(end);
    for (auto it = all.begin(); it != all.end(); ++it) {
      if (it->get() == wait) {
        found = *it;
        all.erase(it);
        break;
      }
    }
  }
  if (found == nullptr) return;
  found->cancellation = nullptr;  // whose callback this is
  Complete(found, absl::CancelledError(absl::StrCat("The run was cancelled while it waited at the ",
                                                name_, ".")));
}

void Channel::Fail(End end, const absl::Status& status) {
  Waits failed;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failed.swap(waits(end));
  }
  for (const auto& wait : failed) Complete(wait, status);
}

void Channel::Drain(const absl::Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    elements_.clear();
  }
  Fail(End::kTake, status);
  Fail(End::kPut, status);
}

int64_t Channel::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return elements_.size();
}

void Channel::Describe(std::string* lines) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t now = tensorflow::Env::Default()->NowMicros();
  for (const Waits* all : {&takes_, &puts_}) {
    if (all->empty()) continue;
    const Wait& oldest = *all->front();
    *lines += name_ + (all == &takes_ ? "\ttake\t" : "\tput\t") + oldest.op + "\t" +
              std::to_string(now - oldest.since) + "\n";
  }
}

std::shared_ptr<Channel> ChannelNamed(const std::string& name) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  std::shared_ptr<Channel>& channel = registry.channels[name];
  if (channel == nullptr) channel = std::make_shared<Channel>(name);
  return channel;
}

namespace {

std::vector<std::shared_ptr<Channel>> AllChannels() {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  std::vector<std::shared_ptr<Channel>> all;
  for (const auto& named : registry.channels) all.push_back(named.second);
  return all;
}

}  // namespace

void ResetChannels(const std::string& prefix, const absl::Status& status) {
  std::vector<std::shared_ptr<Channel>> dropped;
  {
    Registry& registry = TheRegistry();
    std::lock_guard<std::mutex> lock(registry.mutex);
    auto it = registry.channels.lower_bound(prefix);
    while (it != registry.channels.end() && it->first.compare(0, prefix.size(), prefix) == 0) {
      dropped.push_back(it->second);
      it = registry.channels.erase(it);
    }
  }
  for (const auto& channel : dropped) channel->Drain(status);
}

namespace {

// The channel is found in every run: a reset forgets it.
class ChannelOp : public tensorflow::AsyncOpKernel {
 public:
  explicit ChannelOp(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("channel", &channel_));
  }

 protected:
  std::shared_ptr<Wait> NewWait(OpKernelContext* context) const {
    auto wait = std::make_shared<Wait>();
    wait->op = name();
    wait->cancellation = context->cancellation_manager();
    return wait;
  }

  std::string channel_;
};

class ChannelPutOp : public ChannelOp {
 public:
  explicit ChannelPutOp(OpKernelConstruction* construction) : ChannelOp(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("capacity", &capacity_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    std::shared_ptr<Wait> wait = NewWait(context);
    for (int i = 0; i < context->num_inputs(); ++i) wait->element.push_back(context->input(i));
    wait->done = [context, done](const absl::Status& status, Element) {
      context->SetStatus(status);
      done();
    };
    ChannelNamed(channel_)->Add(End::kPut, capacity_, std::move(wait));
  }

 private:
  int64_t capacity_;
};

class ChannelTakeOp : public ChannelOp {
 public:
  explicit ChannelTakeOp(OpKernelConstruction* construction) : ChannelOp(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dtypes", &dtypes_));
    OP_REQUIRES_OK(construction, construction->GetAttr("shapes", &shapes_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    std::shared_ptr<Wait> wait = NewWait(context);
    wait->done = [this, context, done](const absl::Status& status, Element element) {
      context->SetStatus(status.ok() ? Check(element) : status);
      if (context->status().ok()) {
        for (size_t i = 0; i < element.size(); ++i) context->set_output(i, element[i]);
      }
      done();
    };
    ChannelNamed(channel_)->Add(End::kTake, 0, std::move(wait));
  }

 private:
  absl::Status Check(const Element& element) const {
    bool fits = element.size() == dtypes_.size();
    for (size_t i = 0; fits && i < element.size(); ++i) {
      fits = element[i].dtype() == dtypes_[i] && shapes_[i].IsCompatibleWith(element[i].shape());
    }
    if (fits) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "What is enqueued must have the number, dtypes and shapes of what is dequeued, but the ",
        channel_, " got ", Signature(element), ", and ", name(), " dequeues ",
        Signature(dtypes_, shapes_), "."));
  }

  tensorflow::DataTypeVector dtypes_;
  std::vector<tensorflow::PartialTensorShape> shapes_;
};

class ChannelSizeOp : public tensorflow::OpKernel {
 public:
  explicit ChannelSizeOp(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("channel", &channel_));
  }

  void Compute(OpKernelContext* context) override {
    tensorflow::Tensor* size;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &size));
    size->scalar<int32_t>()() = static_cast<int32_t>(ChannelNamed(channel_)->size());
  }

 private:
  std::string channel_;
};

class ResetChannelsOp : public tensorflow::OpKernel {
 public:
  explicit ResetChannelsOp(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("reason", &reason_));
  }

  void Compute(OpKernelContext*) override {
    ResetChannels("", absl::CancelledError(reason_));
  }

 private:
  std::string reason_;
};

REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingChannelPut").Device(tensorflow::DEVICE_CPU),
                        ChannelPutOp);
REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingChannelTake").Device(tensorflow::DEVICE_CPU),
                        ChannelTakeOp);
REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingChannelSize").Device(tensorflow::DEVICE_CPU),
                        ChannelSizeOp);
REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingResetChannels").Device(tensorflow::DEVICE_CPU),
                        ResetChannelsOp);

}  // namespace
}  // namespace tpu_estimator_embedding

// Each returns at once, and is called by one thread of Python.

extern "C" const char* tpu_embedding_channel_waits() {
  static thread_local std::string lines;
  lines.clear();
  for (const auto& channel : tpu_estimator_embedding::AllChannels()) channel->Describe(&lines);
  return lines.c_str();
}

extern "C" void tpu_embedding_fail_channel(const char* name, int is_put, const char* message) {
  using tpu_estimator_embedding::End;
  tpu_estimator_embedding::ChannelNamed(name)->Fail(
      is_put ? End::kPut : End::kTake, absl::AbortedError(message));
}

extern "C" void tpu_embedding_drain_channel(const char* name, const char* message) {
  tpu_estimator_embedding::ChannelNamed(name)->Drain(absl::AbortedError(message));
}

extern "C" void tpu_embedding_drop_channels(const char* prefix) {
  tpu_estimator_embedding::ResetChannels(
      prefix, absl::CancelledError("The TPUEmbedding was deleted."));
}

extern "C" void tpu_embedding_interrupt_channels(int is_interrupted) {
  tpu_estimator_embedding::TheRegistry().is_interrupted = is_interrupted != 0;
  if (!is_interrupted) return;
  for (const auto& channel : tpu_estimator_embedding::AllChannels()) {
    for (auto end : {tpu_estimator_embedding::End::kTake, tpu_estimator_embedding::End::kPut}) {
      channel->Fail(end, absl::CancelledError("Interrupted."));
    }
  }
}
