// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/row_rules.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

// Empty: no obstacle.
std::string InTheWayOfRows(const Consistency& consistency) {
  if (!consistency.is_sync())
    return absl::StrCat("need spec.sync.mode Sync, which is ", NameOf(consistency.mode));
  if (consistency.backup_workers > 0) {
    return absl::StrCat("need spec.sync.backupWorkers 0, which is ", consistency.backup_workers);
  }
  return consistency.gated ? "need spec.sync.gated false" : "";
}

}  // namespace

absl::Status CheckRowMode(std::span<const TensorSpec> tensors, const Consistency& consistency) {
  const auto rows =
      absl::c_find_if(tensors, [](const TensorSpec& tensor) { return !!tensor.rows; });
  const std::string in_the_way = rows == tensors.end() ? "" : InTheWayOfRows(consistency);
  if (in_the_way.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor \"",
                                                 rows->name,
                                                 "\": row-sparse tensors ",
                                                 in_the_way,
                                                 "; register it as a dense one there"));
}

}  // namespace pushpull
