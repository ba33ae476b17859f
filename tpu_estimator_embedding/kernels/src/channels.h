// SPDX-License-Identifier: Apache-2.0
// Channels: bounded queues of tensors that all graphs, sessions and threads of a process share.
//
// TensorFlow's queues belong to one session. Programs that feed a TPU by hand enqueue, train and
// collect results in different graphs and sessions.
#ifndef TPU_ESTIMATOR_EMBEDDING_CHANNELS_H_
#define TPU_ESTIMATOR_EMBEDDING_CHANNELS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/lib/core/status.h"

namespace tpu_estimator_embedding {

using Element = std::vector<tensorflow::Tensor>;

enum class End { kTake = 0, kPut = 1 };

// An op that waits at one end of a channel. Whoever removes it from the channel completes it.
struct Wait {
  std::string op;
  Element element;  // to put, or that was taken
  std::function<void(const absl::Status&, Element)> done;
  tensorflow::CancellationManager* cancellation = nullptr;
  tensorflow::CancellationToken token = 0;
  int64_t since = 0;  // microseconds
};

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  explicit Channel(const std::string& name) : name_(name) {}

  // Completes `wait` at once or when there is room or an element, in the order of the calls.
  void Add(End end, int64_t capacity, std::shared_ptr<Wait> wait);

  // Completes all waits at one end with an error.
  void Fail(End end, const absl::Status& status);

  // Drops all elements, and completes all waits with an error.
  void Drain(const absl::Status& status);

  int64_t size() const;

  // Appends a line for each end that waits: name, end, op and microseconds, separated by tabs.
  void Describe(std::string* lines) const;

 private:
  using Waits = std::deque<std::shared_ptr<Wait>>;

  Waits& waits(End end) { return end == End::kTake ? takes_ : puts_; }
  void Cancel(End end, const Wait* wait);
  void Match(Waits* completed);

  const std::string name_;
  mutable std::mutex mutex_;
  std::deque<Element> elements_;
  Waits takes_, puts_;
  int64_t capacity_ = 1;
};

// Returns the channel of this name, and creates it on first use.
std::shared_ptr<Channel> ChannelNamed(const std::string& name);

// Drains and forgets all channels whose names begin with `prefix`.
void ResetChannels(const std::string& prefix, const absl::Status& status);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_CHANNELS_H_
