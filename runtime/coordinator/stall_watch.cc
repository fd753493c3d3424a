// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/stall_watch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace pushpull {
namespace {

// Keeps the log line short enough to be read.
constexpr size_t kDescribedMax = 8;

// Heartbeats come every second.
constexpr Duration kSilentAfter = std::chrono::milliseconds(2'500);

// In a collective, or in a step of mode AllReduce, which has no servers.
bool WaitsForWorkers(const WorkerActivity& activity) {
  return activity.phase == WorkerPhase::kInCollective ||
         (activity.phase == WorkerPhase::kWaiting && activity.servers.empty());
}

std::string CollectiveOf(const WorkerActivity& activity) {
  return activity.phase == WorkerPhase::kInCollective ? activity.subject : "";
}

// Whether others may wait for it: it takes part in the job's steps.
bool IsAwaited(const WorkerActivity& activity) {
  return activity.phase != WorkerPhase::kJoining && activity.phase != WorkerPhase::kLeaving;
}

}  // namespace

bool StallWatch::OnServer(ServerId server, const std::optional<Stall>& stall) {
  if (!stall) return stalls_.erase(server) > 0;
  stalls_[server] = *stall;
  return true;
}

std::optional<Stall> StallWatch::Lowest(SteadyTime now, Duration at_least) const {
  std::optional<Stall> lowest = OfServers(at_least);
  if (!lowest) lowest = OfWorkers(now, at_least);
  if (lowest) lowest->detail = Describe(now, lowest->missing);
  return lowest;
}

std::optional<Stall> StallWatch::OfServers(Duration at_least) const {
  std::optional<Stall> current;
  for (const auto& [server, stall] : stalls_) {
    if (stall.seconds < ToSeconds(at_least)) continue;
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
  return current;
}

std::optional<Stall> StallWatch::OfWorkers(SteadyTime now, Duration at_least) const {
  const WorkerActivity* longest = nullptr;
  WorkerId of;
  for (const auto& [worker, report] : reports_) {
    const WorkerActivity& activity = report.activity;
    const bool waits = WaitsForWorkers(activity) && activity.seconds >= ToSeconds(at_least) &&
                       now - report.at < kSilentAfter;
    if (!waits || (longest != nullptr && activity.seconds <= longest->seconds)) continue;
    longest = &activity;
    of = worker;
  }
  if (longest == nullptr) return std::nullopt;
  Stall stall{.step = longest->step,
              .tensor = {},
              .missing = {},
              .seconds = longest->seconds,
              .waiting = {},
              .detail = {},
              .collective = CollectiveOf(*longest)};
  if (longest->peer) {  // both ends in the same message would be done at once
    stall.missing = {*longest->peer};
    stall.waiting = {of};
    return stall;
  }
  for (const auto& [worker, report] : reports_) {
    const WorkerActivity& activity = report.activity;
    const bool waits = WaitsForWorkers(activity) && CollectiveOf(activity) == stall.collective &&
                       activity.step == stall.step && now - report.at < kSilentAfter;
    if (waits) {
      stall.waiting.push_back(worker);
    } else if (IsAwaited(activity)) {
      stall.missing.push_back(worker);
    }
  }
  return stall.missing.empty() ? std::nullopt : std::optional<Stall>(std::move(stall));
}

std::vector<std::pair<WorkerId, StepWaits>> StallWatch::TakeWaits(SteadyTime now) {
  std::map<WorkerId, StepWaits> waits;
  const std::optional<Stall> lowest =
      Lowest(now, std::min<Duration>(limit_, Stall::kReportedAfter));
  if (lowest) {
    const bool is_of_tensor = !lowest->tensor.empty();
    const StepWaits wait{.missing = lowest->missing,
                         .what = MissingIn(*lowest),
                         .step = is_of_tensor ? std::optional(lowest->step) : std::nullopt};
    for (const WorkerId worker : lowest->waiting) waits.emplace(worker, wait);
  }
  std::vector<std::pair<WorkerId, StepWaits>> news;
  for (const auto& [worker, wait] : waits) {
    const auto told = told_.find(worker);
    if (told == told_.end() || told->second != wait) news.emplace_back(worker, wait);
  }
  for (const auto& [worker, wait] : told_) {
    if (!waits.contains(worker)) news.emplace_back(worker, StepWaits());
  }
  told_ = std::move(waits);
  return news;
}

std::string StallWatch::Describe(SteadyTime now, const std::vector<WorkerId>& missing) const {
  std::vector<std::string> parts;
  for (const WorkerId worker : missing) {
    const auto report = reports_.find(worker);
    if (report == reports_.end()) continue;
    if (parts.size() == kDescribedMax) {
      parts.push_back("...");
      break;
    }
    const Duration silence = now - report->second.at;
    parts.push_back(absl::StrCat(
        ToString(worker),
        ": ",
        ToString(report->second.activity),
        silence < kSilentAfter
            ? ""
            : absl::StrFormat(", but silent for %.1f s: stopped?", ToSeconds(silence))));
  }
  return absl::StrJoin(parts, "; ");
}

std::optional<StallWatch::News> StallWatch::Take(SteadyTime time) {
  std::optional<Stall> now = Current(time);
  const bool is_same = now.has_value() == said_.has_value() &&
                       (!now || (now->step == said_->step && now->missing == said_->missing));
  if (is_same) return std::nullopt;
  const std::optional<Stall> before = std::exchange(said_, now);
  if (!now) return News{.text = absl::StrCat("step ", before->step.value(), " goes on")};
  return News{.has_begun = true, .text = ToString(*now), .missing = now->missing};
}

}  // namespace pushpull
