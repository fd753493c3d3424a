// SPDX-License-Identifier: Apache-2.0
//
// Which tensors workers can sum and apply among themselves in mode AllReduce. Pure.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"

#include "pushpull/tensor_spec.h"

#include "runtime/coordinator/job_core_options.h"
#include "runtime/membership/control.h"

namespace pushpull {

// kInvalidArgument: a tensor has a codec, a clip_norm, rows, or a reduction other than mean and
// sum, all of which need servers.
absl::Status CheckRingTensors(std::span<const TensorSpec> tensors);

// kFailedPrecondition: the worker has no ring address although the job's mode is AllReduce, or vice
// versa.
absl::Status CheckRingAddress(const JobCoreOptions& options, const RegisterWorker& worker);

}  // namespace pushpull
