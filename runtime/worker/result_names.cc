// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/result_names.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/printable.h"
#include "runtime/membership/control.h"

namespace pushpull {

absl::Status ResultNames::Add(absl::string_view name) {
  constexpr size_t kShownBytes = 40;
  const std::string shown = Printable(name, kShownBytes);
  if (name.size() > WorkerStats::kResultNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("result \"",
                                                   shown,
                                                   "\": the name has ",
                                                   name.size(),
                                                   " bytes, at most ",
                                                   WorkerStats::kResultNameBytesMax,
                                                   " are possible: give it a shorter one"));
  }
  const MutexLock lock(mu_);
  const std::string key(name);
  if (names_.size() >= WorkerStats::kResultsMax && !names_.contains(key)) {
    return absl::InvalidArgumentError(
        absl::StrCat("result \"",
                     shown,
                     "\": this worker has reported ",
                     WorkerStats::kResultsMax,
                     " names, and more are not possible: report a result again under its name"));
  }
  names_.insert(key);
  return absl::OkStatus();
}

}  // namespace pushpull
