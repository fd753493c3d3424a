// SPDX-License-Identifier: Apache-2.0
//
// The program that the workers of a simulated job run: all hold the same tensors and push, step by
// step, gradients that the test chooses.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "tests/fakes/sim_job.h"

namespace pushpull {

// One dimension; learning rate 1, or none for the optimizer Sum.
TensorSpec SimTensor(const std::string& name,
                     int64_t values,
                     OptimizerKind kind,
                     Reduction reduction);

// What a launcher does: starts the servers 0 to wanted - 1 that are not there, buries those that
// have ended by themselves.
void KeepServers(SimJob& job, uint32_t wanted);

// The coordinator knows the servers 0 to wanted - 1 by their present processes, and every shard is
// in its place.
bool IsWhole(SimJob& job, uint32_t wanted);

// Thread-confined to the test.
class SimTrainer {
 public:
  using Operations = std::vector<std::shared_ptr<PendingOperation>>;

  // `job` outlives the trainer.
  SimTrainer(SimJob& job, std::vector<TensorSpec> specs);

  // Starts workers 0 to count - 1 and waits until the job's values, zeros, are in place.
  absl::Status Start(uint32_t count);
  std::shared_ptr<PendingOperation> StartOne(uint32_t index);

  // Begins one step of a worker: every value of its gradient of tensor i is `gradient_of(i)`.
  Operations Push(uint32_t index,
                  const std::function<float(size_t tensor)>& gradient_of,
                  double samples = 1);
  Operations Push(uint32_t index, float gradient, double samples = 1);

  // Begins a step of all workers 0 to count - 1, worker i with gradient `gradient_of(i)`.
  Operations PushAll(uint32_t count, const std::function<float(uint32_t worker)>& gradient_of);
  // Likewise, and waits for its end.
  absl::Status StepAll(uint32_t count, const std::function<float(uint32_t worker)>& gradient_of);

  // What the worker has pulled last.
  const std::vector<float>& value(uint32_t index, size_t tensor = 0) const {
    return values_.at(index)[tensor];
  }

 private:
  SimJob& job_;
  const std::vector<TensorSpec> specs_;
  std::map<uint32_t, std::vector<std::vector<float>>> values_;
  std::map<uint32_t, std::vector<std::vector<float>>> gradients_;
};

}  // namespace pushpull
