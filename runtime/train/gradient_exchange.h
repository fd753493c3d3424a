// SPDX-License-Identifier: Apache-2.0
//
// Synchronizes the parameters of a network with a job: each gradient is pushed as soon as autograd
// has computed it, from the last layer to the first, while those of earlier layers are still being
// computed. The new values are received into the parameters' own memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <torch/nn/module.h>

#include "pushpull/deadline.h"
#include "pushpull/job.h"

namespace pushpull {

// A step is BeginStep, then one backward pass over the network's loss, then FinishStep.
//
// The new value of a parameter may arrive while backward is still running. Nothing reads the old
// value any more: the gradient is complete only once every operation that used the parameter has
// been differentiated, and no other operation refers to its memory.
//
// Thread-confined to the thread that runs backward, which for tensors on the CPU is also the thread
// of autograd's callbacks.
class GradientExchange {
 public:
  // Hooks into every parameter of `network` that requires a gradient: float32, contiguous, on the
  // CPU, in the order of first use in the forward pass. `job` is used until the last FinishStep. If
  // a step has failed, destroy the job before this object and the network: the job may still read
  // gradients and write parameters.
  GradientExchange(Job& job, const torch::nn::Module& network);
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;
  // Removes the hooks.
  ~GradientExchange();

  // Registers all parameters with the reduction mean; afterwards they have the job's values. Blocks
  // and fails like Job::Register.
  absl::Status Register(const OptimizerSpec& optimizer, Codec codec, Deadline deadline);

  // Gradients that become ready from now on are pushed with `options`.
  void BeginStep(const PushOptions& options);

  // For tests: the next gradient of the first parameter has a NaN.
  void PoisonNextGradient() { is_poisoned_ = true; }

  // Pushes zero gradients, for a step in which this worker has no samples.
  void PushZeros();

  // Blocks until all parameters have the job's new values or `deadline` passes, and drops the
  // gradients. After an error the parameters may mix the values of two steps: stop.
  //
  // clang-format off
  //   kFailedPrecondition  a parameter, which is named, got no gradient.
  //   others               as in Job::PushPull and PushHandle::Wait.
  // clang-format on
  absl::Status FinishStep(Deadline deadline);

 private:
  struct Parameter;

  void Push(Parameter& parameter);

  Job& job_;
  std::vector<std::unique_ptr<Parameter>> parameters_;  // the hooks have their addresses
  PushOptions options_;
  bool is_poisoned_ = false;
  absl::Status push_status_;
};

}  // namespace pushpull
