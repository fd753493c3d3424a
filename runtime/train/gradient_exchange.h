// SPDX-License-Identifier: Apache-2.0
//
// Couples the parameters of a network to a job: each gradient is pushed the moment autograd has it,
// from the last layer back, while the gradients of the layers before are still being computed; the
// new values come back into the parameters' own memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <torch/nn/module.h>

#include "pushpull/job.h"

#include "runtime/base/deadline.h"

namespace pushpull {

// A step is BeginStep, then one backward pass over the network's loss, then FinishStep.
//
// The new value of a parameter may arrive while backward still runs. Nothing reads the old one by
// then: its gradient is complete only when every operation that used the parameter has been
// differentiated, and the others do not know its memory.
//
// Thread-confined to the thread that runs backward, which for tensors on the CPU is also the one
// that autograd calls back on.
class GradientExchange {
 public:
  // Hooks into every parameter of `network` that has a gradient; in their order the first is taken
  // to be used first in the forward pass. float32, contiguous, on the CPU. `job` is used until the
  // last FinishStep; end it before this object and the network if a step has failed, for it may
  // still read gradients and write parameters then.
  GradientExchange(Job& job, const torch::nn::Module& network);
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;
  // Removes the hooks.
  ~GradientExchange();

  // Registers all parameters, reduced by their mean, their gradients sent with `codec`. Their
  // values become those of the job. Blocks and fails as Job::Register does.
  absl::Status Register(const OptimizerSpec& optimizer, Codec codec, Deadline deadline);

  // From here on, gradients are pushed with `options` as they come.
  void BeginStep(const PushOptions& options);

  // Test aid: one value of the first parameter's next gradient becomes not a number.
  void PoisonNextGradient() { is_poisoned_ = true; }

  // For a step in which this worker has no samples: pushes gradients of zero, without backward.
  void PushZeros();

  // Blocks until the job's new values are in all parameters or `deadline` passes, and drops the
  // gradients. kFailedPrecondition: backward gave a parameter no gradient; the text names it. The
  // errors of Job::PushPull and PushHandle::Wait are handed on. After any of them the values of
  // the parameters are those of no step: stop.
  absl::Status FinishStep(Deadline deadline);

 private:
  struct Parameter;

  void Push(Parameter& parameter);

  Job& job_;
  std::vector<std::unique_ptr<Parameter>> parameters_;  // their addresses are in the hooks
  PushOptions options_;
  bool is_poisoned_ = false;
  absl::Status push_status_;
};

}  // namespace pushpull
