// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/view.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace pushpull {

absl::string_view NameOf(ConsistencyMode mode) {
  switch (mode) {
    case ConsistencyMode::kSync:
      return "Sync";
    case ConsistencyMode::kAsync:
      return "Async";
    case ConsistencyMode::kBounded:
      return "Bounded";
  }
  return "unknown";
}

std::optional<ConsistencyMode> ConsistencyModeFrom(absl::string_view name) {
  for (const ConsistencyMode mode :
       {ConsistencyMode::kSync, ConsistencyMode::kAsync, ConsistencyMode::kBounded}) {
    if (name == NameOf(mode)) return mode;
  }
  return std::nullopt;
}

std::string Describe(const Consistency& consistency) {
  std::string text(NameOf(consistency.mode));
  if (consistency.mode == ConsistencyMode::kBounded)
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
