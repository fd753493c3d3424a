// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/driver_error.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

struct DriverRemedy {
  CuResult result;
  absl::StatusCode code;
  const char* what_to_do;
};

constexpr const char* kRestartProcess =
    "the process cannot use this GPU any more, start it again; compute-sanitizer finds the cause";
constexpr const char* kCheckDriver = "check the driver with nvidia-smi";
constexpr const char* kOtherBuild =
    "the kernels of this build do not fit this GPU or driver: build with "
    "-DPUSHPULL_CUDA_ARCHITECTURES for it, or install a driver as new as the toolkit";

constexpr std::array kDriverRemedies = {
    DriverRemedy{kCuOutOfMemory,
                 absl::StatusCode::kResourceExhausted,
                 "free memory of the GPU, or ask for less"},
    DriverRemedy{kCuStubLibrary,
                 absl::StatusCode::kFailedPrecondition,
                 "this libcuda.so is a stub of the toolkit: put the driver's first"},
    DriverRemedy{kCuDeviceUnavailable,
                 absl::StatusCode::kFailedPrecondition,
                 "another process has the GPU for itself: check its compute mode with nvidia-smi"},
    DriverRemedy{kCuNoDevice,
                 absl::StatusCode::kFailedPrecondition,
                 "give the process a GPU, or check CUDA_VISIBLE_DEVICES"},
    DriverRemedy{kCuInvalidDevice,
                 absl::StatusCode::kFailedPrecondition,
                 "there are fewer GPUs: count them with nvidia-smi -L"},
    DriverRemedy{kCuInvalidImage, absl::StatusCode::kFailedPrecondition, kOtherBuild},
    DriverRemedy{kCuNoBinaryForGpu, absl::StatusCode::kFailedPrecondition, kOtherBuild},
    DriverRemedy{kCuUnsupportedPtxVersion, absl::StatusCode::kFailedPrecondition, kOtherBuild},
    DriverRemedy{kCuEccUncorrectable,
                 absl::StatusCode::kDataLoss,
                 "its memory is damaged: start again elsewhere, and check nvidia-smi -q -d ECC"},
    DriverRemedy{kCuNotReady, absl::StatusCode::kUnavailable, "wait, then ask again"},
    DriverRemedy{kCuDeinitialized,
                 absl::StatusCode::kAborted,
                 "the process is ending: let objects of the device end before main returns"},
    DriverRemedy{kCuIllegalAddress, absl::StatusCode::kAborted, kRestartProcess},
    DriverRemedy{kCuLaunchFailed, absl::StatusCode::kAborted, kRestartProcess},
    DriverRemedy{kCuSystemNotReady, absl::StatusCode::kFailedPrecondition, kCheckDriver},
    DriverRemedy{kCuSystemDriverMismatch,
                 absl::StatusCode::kFailedPrecondition,
                 "the library and the kernel module are of different drivers: restart the machine"},
    DriverRemedy{kCuCompatNotSupported, absl::StatusCode::kFailedPrecondition, kCheckDriver},
};

DriverRemedy RemedyFor(CuResult result) {
  const auto* found = std::find_if(kDriverRemedies.begin(),
                                   kDriverRemedies.end(),
                                   [&](const DriverRemedy& row) { return row.result == result; });
  if (found != kDriverRemedies.end()) return *found;
  return {result, absl::StatusCode::kInternal, "a bug: report it with this text"};
}

std::string NameOf(const DriverApi& driver, CuResult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  driver.get_error_name(result, &name);
  driver.get_error_string(result, &text);
  if (name == nullptr) return absl::StrCat("CUDA error ", result);
  return absl::StrCat(name, text == nullptr ? "" : absl::StrCat(" (", text, ")"));
}

}  // namespace

absl::Status DriverStatus(const DriverApi& driver, CuResult result, const DriverCall& call) {
  if (result == kCuSuccess) return absl::OkStatus();
  const DriverRemedy remedy = RemedyFor(result);
  std::string text(call.name);
  if (call.num_bytes > 0) absl::StrAppend(&text, " of ", call.num_bytes, " bytes");
  if (!call.object.empty()) absl::StrAppend(&text, " of ", call.object);
  if (!call.device.empty()) absl::StrAppend(&text, " on ", call.device);
  absl::StrAppend(&text, ": ", NameOf(driver, result), ": ", remedy.what_to_do);
  return absl::Status(remedy.code, text);
}

}  // namespace pushpull
