// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/clip_rules.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pushpull {
namespace {

// Empty: no obstacle.
std::string InTheWayOfClipping(const Consistency& consistency) {
  if (!consistency.is_sync()) {
    return absl::StrCat("needs spec.sync.mode Sync, which is ",
                        NameOf(consistency.mode),
                        ": without common steps there is no mean gradient to clip");
  }
  if (consistency.backup_workers > 0) {
    return absl::StrCat("needs spec.sync.backupWorkers 0, which is ", consistency.backup_workers);
  }
  return consistency.gated ? "needs spec.sync.gated false" : "";
}

}  // namespace

absl::Status CheckClipping(std::span<const TensorSpec> tensors, const Consistency& consistency) {
  const TensorSpec* first = nullptr;
  for (const TensorSpec& tensor : tensors) {
    if (!(tensor.clip_norm >= 0) || !std::isfinite(tensor.clip_norm)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor \"%s\": clip_norm %g must be finite, 0 (none) or more",
                          tensor.name,
                          tensor.clip_norm));
    }
    if (tensor.clip_norm == 0) continue;
    if (first == nullptr) first = &tensor;
    if (tensor.clip_norm != first->clip_norm) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor \"%s\": clip_norm %g, but tensor \"%s\" has %g: the norm is that of all clipped "
          "tensors together; give them the same clip_norm",
          tensor.name,
          tensor.clip_norm,
          first->name,
          first->clip_norm));
    }
  }
  const std::string in_the_way = first == nullptr ? "" : InTheWayOfClipping(consistency);
  if (in_the_way.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("tensor \"%s\": clip_norm %g %s; register it with clip_norm 0 there",
                      first->name,
                      first->clip_norm,
                      in_the_way));
}

}  // namespace pushpull
