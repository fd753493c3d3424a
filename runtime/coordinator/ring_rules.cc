// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/ring_rules.h"

#include "absl/strings/str_cat.h"

#include "runtime/job/enum_names.h"
#include "runtime/tensor/codec.h"

namespace pushpull {
namespace {

// Empty: no obstacle.
std::string InTheWayOfRings(const TensorSpec& tensor) {
  if (tensor.rows) return "is row-sparse: register it as a dense one";
  if (tensor.codec != Codec::kNone)
    return absl::StrCat("has the codec ", ToString(tensor.codec), ": use none");
  if (tensor.clip_norm != 0) return absl::StrCat("has clip_norm ", tensor.clip_norm, ": use 0");
  return "";
}

}  // namespace

absl::Status CheckRingTensors(std::span<const TensorSpec> tensors) {
  for (const TensorSpec& tensor : tensors) {
    const std::string in_the_way = InTheWayOfRings(tensor);
    if (in_the_way.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor \"", tensor.name, "\" ", in_the_way, ", or another spec.sync.mode than AllReduce"));
  }
  return absl::OkStatus();
}

absl::Status CheckRingAddress(const JobCoreOptions& options, const RegisterWorker& worker) {
  const bool is_ring = options.consistency.is_ring();
  if (is_ring != worker.ring_address.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("job ",
                                                    options.settings.job,
                                                    " has spec.sync.mode ",
                                                    NameOf(options.consistency.mode),
                                                    ": start its workers ",
                                                    is_ring ? "with" : "without",
                                                    " PUSHPULL_RING"));
}

}  // namespace pushpull
