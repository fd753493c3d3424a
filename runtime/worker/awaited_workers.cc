// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/awaited_workers.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pushpull {

void AwaitedWorkers::Set(const StepWaits& waits) {
  MutexLock lock(mu_);
  waits_ = waits;
}

std::string AwaitedWorkers::Describe(std::optional<Step> step) const {
  MutexLock lock(mu_);
  const bool is_of_other_step = step && waits_.step && *step != *waits_.step;
  if (waits_.missing.empty() || is_of_other_step) return "";
  const std::string names =
      absl::StrJoin(waits_.missing, ", ", [](std::string* text, WorkerId worker) {
        text->append(ToString(worker));
      });
  return absl::StrCat("it waits for ",
                      names,
                      ": ",
                      waits_.what,
                      ". They are alive: wait longer (timeout, step_timeout; None: as long as they "
                      "are), or set spec.sync.onStall");
}

}  // namespace pushpull
