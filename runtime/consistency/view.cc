// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/view.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace pushpull {

std::string Describe(const Consistency& consistency) {
  std::string text(NameOf(consistency.mode));
  if (consistency.mode == SyncMode::kBounded)
    absl::StrAppend(&text, ", staleness ", consistency.staleness);
  if (consistency.admits()) absl::StrAppend(&text, ", backupWorkers ", consistency.backup_workers);
  if (consistency.gated) absl::StrAppend(&text, ", gated");
  return text;
}

const ViewMember* View::Find(WorkerId worker) const {
  const auto it =
      absl::c_find_if(members, [&](const ViewMember& member) { return member.worker == worker; });
  return it == members.end() ? nullptr : &*it;
}

}  // namespace pushpull
