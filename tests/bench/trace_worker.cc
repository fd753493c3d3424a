// SPDX-License-Identifier: Apache-2.0
//
// A worker that trains nothing: it sleeps as long as each layer computes, pushes a layer's tensors
// when its backward pass is over, and begins a layer's forward pass when its tensors are back.
// shaped.py measures with it what the order on the wire is worth. Never ends by itself.
//
//   trace_worker TRACE priority|fifo|whole
//
// TRACE has a line for each tensor, in the order of the forward pass: name, number of values,
// seconds of the forward and of the backward pass before it is needed and after which it is ready.
//
// - priority: tensors as registered, each chunk back as soon as it is summed: what this runtime
// does
// - fifo: the same, all with one priority: first ready, first sent
// - whole: as fifo, and a tensor is asked for when all of it has been pushed, as frameworks do that
//   know no chunks
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pushpull/job.h"

#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "tests/bench/pause.h"

namespace pushpull {
namespace {

using std::chrono::seconds;

constexpr seconds kStart{60};
constexpr seconds kStep{300};

struct Layer {
  std::string name;
  Duration forward{0};
  Duration backward{0};
  std::vector<float> gradient;
  std::vector<float> value;
};

absl::StatusOr<std::vector<Layer>> ReadTrace(const std::string& path) {
  std::ifstream file(path);
  std::vector<Layer> layers;
  std::string name;
  size_t values = 0;
  double forward = 0;
  double backward = 0;
  const auto duration = [](double length) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(length));
  };
  while (file >> name >> values >> forward >> backward) {
    layers.push_back({.name = name,
                      .forward = duration(forward),
                      .backward = duration(backward),
                      .gradient = std::vector<float>(values),
                      .value = std::vector<float>(values)});
  }
  if (!file.eof() || layers.empty()) return absl::InvalidArgumentError(path + ": is no trace");
  return layers;
}

// Operations of a step, one a tensor, begun by one thread and awaited by another.
class Operations {
 public:
  explicit Operations(size_t count) : begun_(count) {}

  void Set(size_t i, absl::StatusOr<PushHandle> operation) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    begun_[i].emplace(std::move(operation));
    changed_.NotifyAll();
  }

  // Until it is begun and done; once a step.
  absl::Status Wait(size_t i) ABSL_LOCKS_EXCLUDED(mu_) {
    const Deadline deadline = Deadline::After(kStep);
    std::optional<absl::StatusOr<PushHandle>> operation;
    {
      MutexLock lock(mu_);
      while (!begun_[i]) {
        if (deadline.has_passed()) return absl::DeadlineExceededError("not begun");
        changed_.WaitUntil(mu_, deadline);
      }
      operation.swap(begun_[i]);
    }
    PUSHPULL_RETURN_IF_ERROR(operation->status());
    return (**operation).Wait(deadline);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<std::optional<absl::StatusOr<PushHandle>>> begun_ ABSL_GUARDED_BY(mu_);
};

class Replay {
 public:
  Replay(Job& job, std::vector<Layer>& layers, bool is_whole)
      : job_(job),
        layers_(layers),
        is_whole_(is_whole),
        pushes_(layers.size()),
        values_(layers.size()) {}

  // Backward pass, and the forward pass of the next step.
  absl::Status RunStep() {
    std::thread asking;
    if (is_whole_) {
      const Step next{job_.next_step().value() + 1};
      asking = std::thread([this, next] { AskForWhole(next); });
    }
    for (size_t i = layers_.size(); i-- > 0;) {
      Layer& layer = layers_[i];
      Pause(layer.backward);
      const std::span<float> out = is_whole_ ? std::span<float>() : layer.value;
      (is_whole_ ? pushes_ : values_).Set(i, job_.PushPull(layer.name, layer.gradient, out, {}));
    }
    absl::Status status;
    for (size_t i = 0; i < layers_.size() && status.ok(); ++i) {
      status = values_.Wait(i);
      Pause(layers_[i].forward);
    }
    if (asking.joinable()) asking.join();
    return status;
  }

 private:
  void AskForWhole(Step version) {
    for (size_t i = layers_.size(); i-- > 0;) {
      const absl::Status pushed = pushes_.Wait(i);
      values_.Set(i,
                  pushed.ok() ? job_.Pull(layers_[i].name, layers_[i].value, version)
                              : absl::StatusOr<PushHandle>(pushed));
    }
  }

  Job& job_;
  std::vector<Layer>& layers_;
  const bool is_whole_;
  Operations pushes_;  // of whole tensors
  Operations values_;
};

absl::Status Run(const std::string& trace,
                 const std::string& order,
                 const std::map<std::string, std::string>& environment) {
  if (order != "priority" && order != "fifo" && order != "whole")
    return absl::InvalidArgumentError("must be priority, fifo or whole: " + order);
  PUSHPULL_ASSIGN_OR_RETURN(std::vector<Layer> layers, ReadTrace(trace));
  PUSHPULL_ASSIGN_OR_RETURN(const auto options, JobOptions::FromEnvironment(environment));
  PUSHPULL_ASSIGN_OR_RETURN(const auto job, Job::Join(options, Deadline::After(kStart)));
  std::vector<TensorRegistration> tensors;
  for (Layer& layer : layers) {
    TensorRegistration tensor{.value = layer.value, .keeps_value = false};
    tensor.spec = {.name = layer.name, .dims = {static_cast<int64_t>(layer.value.size())}};
    tensor.spec.optimizer = {.kind = OptimizerKind::kSum};
    if (order != "priority") tensor.priority = 0;
    tensors.push_back(std::move(tensor));
  }
  PUSHPULL_RETURN_IF_ERROR(job->Register(tensors, Deadline::After(kStart)));
  Replay replay(*job, layers, order == "whole");
  while (true) PUSHPULL_RETURN_IF_ERROR(replay.RunStep());
}

}  // namespace
}  // namespace pushpull

int main(int count, char** words) {
  if (count != 3) {
    std::fprintf(stderr, "usage: trace_worker TRACE priority|fifo|whole\n");
    return 2;
  }
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    environment[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  const absl::Status status = pushpull::Run(words[1], words[2], environment);
  std::fprintf(stderr, "trace_worker: %s\n", std::string(status.message()).c_str());
  return 1;
}
