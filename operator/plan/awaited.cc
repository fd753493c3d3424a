// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "operator/plan/parts.h"

namespace pushpull_operator {

using pushpull::JobRole;

using std::chrono::minutes;
using std::chrono::seconds;

namespace {

constexpr size_t kNamesMax = 5;
// The times that are reported. Exact ones would cause a write of the status with every reconcile.
constexpr minutes kTold[] = {minutes(1), minutes(5), minutes(15), minutes(30)};

seconds ToldTime(seconds waited) {
  if (waited >= std::chrono::hours(1)) return std::chrono::floor<std::chrono::hours>(waited);
  seconds told{0};
  for (const minutes step : kTold) {
    if (waited >= step) told = step;
  }
  return told;
}

seconds NextToldTime(seconds waited) {
  for (const minutes step : kTold) {
    if (waited < step) return step;
  }
  return std::chrono::floor<std::chrono::hours>(waited) + std::chrono::hours(1);
}

std::string Spoken(seconds told) {
  const auto unit = [](int64_t count, const char* name) {
    return absl::StrCat(count, " ", name, count == 1 ? "" : "s");
  };
  if (told >= std::chrono::hours(1)) return unit(told / std::chrono::hours(1), "hour");
  return told >= minutes(1) ? unit(told / minutes(1), "minute") : "less than a minute";
}

const char* StateOf(const Pod& pod) {
  if (pod.phase == PodPhase::kRunning) return "its pod runs";
  return pod.node.empty() ? "its pod has no node" : "its pod is being started";
}

const WorkerReport* ReportOf(const Draft& draft, const MemberId& member) {
  if (member.role != JobRole::kWorker || draft.report() == nullptr) return nullptr;
  const auto worker = draft.report()->workers.find(member.index);
  return worker == draft.report()->workers.end() ? nullptr : &worker->second;
}

// Since when it is awaited; nothing: it has registered, or need not.
std::optional<WallTime> AwaitedSince(const Draft& draft,
                                     const MemberId& member,
                                     const MemberPod& pod) {
  // Without the coordinator's report, nothing is known about the other members.
  if (pod.end || pod.is_deleting() || member.index >= draft.DesiredNow(member.role))
    return std::nullopt;
  const WorkerReport* worker = ReportOf(draft, member);
  const bool is_done =
      (worker != nullptr && worker->has_left) || draft.finished_members().contains(member);
  if (is_done || WasReady(*pod.seen, member, worker, draft.now())) return std::nullopt;
  const Pod& seen = pod.seen->pod;
  if (member.role == JobRole::kWorker || !seen.unready_since) return seen.creation_time;
  return std::max(*seen.unready_since, seen.creation_time.value_or(WallTime{}));
}

}  // namespace

std::string AwaitedMembers(Draft& draft, seconds at_least) {
  std::vector<std::string> names;
  size_t num_more = 0;
  for (const auto& [member, pod] : draft.pods()) {
    const std::optional<WallTime> since = AwaitedSince(draft, member, pod);
    if (!since) continue;
    const seconds waited = draft.now() - *since;
    draft.RequeueAt(*since + NextToldTime(waited));
    if (waited < at_least) continue;
    if (names.size() == kNamesMax) {
      ++num_more;
      continue;
    }
    names.push_back(absl::StrCat(draft.NameOf(member),
                                 " for ",
                                 Spoken(ToldTime(waited)),
                                 " (",
                                 StateOf(pod.seen->pod),
                                 ")"));
  }
  if (num_more > 0) names.push_back(absl::StrCat(num_more, " more"));
  return absl::StrJoin(names, ", ");
}

}  // namespace pushpull_operator
