// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/stall_watch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pushpull {
namespace {

// Keeps the log line short enough to be read.
constexpr size_t kDescribedMax = 8;

}  // namespace

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
  std::set<WorkerId> waiting;
  for (const auto& [server, stall] : stalls_) {
    if (stall.step != current->step) continue;
    missing.insert(stall.missing.begin(), stall.missing.end());
    waiting.insert(stall.waiting.begin(), stall.waiting.end());
  }
  // A worker that has pushed only some of its gradients counts as missing, not as waiting.
  for (const WorkerId worker : missing) waiting.erase(worker);
  current->missing.assign(missing.begin(), missing.end());
  current->waiting.assign(waiting.begin(), waiting.end());
  current->detail = Describe(current->missing);
  return current;
}

std::string StallWatch::Describe(const std::vector<WorkerId>& missing) const {
  std::vector<std::string> parts;
  for (const WorkerId worker : missing) {
    const auto activity = activities_.find(worker);
    if (activity == activities_.end()) continue;
    if (parts.size() == kDescribedMax) {
      parts.push_back("...");
      break;
    }
    parts.push_back(absl::StrCat(ToString(worker), ": ", ToString(activity->second)));
  }
  return absl::StrJoin(parts, "; ");
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
