// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/stall_watch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

void StallWatch::OnServer(ServerId server, const std::optional<Stall>& stall) {
  if (stall) {
    stalls_[server] = *stall;
  } else {
    stalls_.erase(server);
  }
}

std::optional<Stall> StallWatch::Current() const {
  std::optional<Stall> current;
  for (const auto& [server, stall] : stalls_) {
    const bool is_first = !current || stall.step < current->step ||
                          (stall.step == current->step && stall.seconds > current->seconds);
    if (is_first) current = stall;
  }
  if (!current) return current;
  std::set<WorkerId> missing;
  for (const auto& [server, stall] : stalls_) {
    if (stall.step == current->step) missing.insert(stall.missing.begin(), stall.missing.end());
  }
  current->missing.assign(missing.begin(), missing.end());
  return current;
}

std::optional<StallWatch::News> StallWatch::Take() {
  std::optional<Stall> now = Current();
  const bool is_same = now.has_value() == said_.has_value() &&
                       (!now || (now->step == said_->step && now->missing == said_->missing));
  if (is_same) return std::nullopt;
  const std::optional<Stall> before = std::exchange(said_, now);
  if (!now) return News{.text = absl::StrCat("step ", before->step.value(), " goes on")};
  return News{.has_begun = true, .text = ToString(*now), .missing = now->missing};
}

}  // namespace pushpull
