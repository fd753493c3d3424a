// SPDX-License-Identifier: Apache-2.0
//
// The driver's results as statuses. Pure, except for the driver's own texts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "runtime/device/cuda/driver_api.h"

namespace pushpull {

// The call, for the text of an error.
struct DriverCall {
  absl::string_view name;         // of the driver's function
  absl::string_view device = {};  // "GPU 0 (NVIDIA H100)"; empty: not known yet
  absl::string_view object = {};  // a kernel; empty: none
  uint64_t num_bytes = 0;         // 0: none
};

// OK for kCuSuccess. Otherwise "cuMemAlloc of 4096 bytes on GPU 0 (NVIDIA H100):
// CUDA_ERROR_OUT_OF_MEMORY (out of memory): what to do", with the code
//
//   kResourceExhausted   out of memory. Free some, ask for less.
//   kFailedPrecondition  the driver, its version, the GPU or the build does not fit. A person acts.
//   kUnavailable         not ready: try again
//   kDataLoss            an uncorrectable error of the GPU's memory; its contents are lost
//   kAborted             a kernel failed: the process cannot use the GPU any more. Restart it.
//   kInternal            anything else: a bug
absl::Status DriverStatus(const DriverApi& driver, CuResult result, const DriverCall& call);

}  // namespace pushpull
