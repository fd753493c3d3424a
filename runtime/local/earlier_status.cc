// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/earlier_status.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace pushpull {
namespace {

const Quantiles& WithMore(const Quantiles& a, const Quantiles& b) {
  return a.count() > b.count() ? a : b;
}

std::vector<LossPoint> Union(const std::vector<LossPoint>& earlier,
                             const std::vector<LossPoint>& now) {
  std::map<Step, LossPoint> by_step;
  for (const LossPoint& point : earlier) by_step[point.step] = point;
  for (const LossPoint& point : now) by_step[point.step] = point;
  std::vector<LossPoint> all;
  all.reserve(by_step.size());
  for (const auto& [step, point] : by_step) all.push_back(point);
  return all;
}

bool ShareAShard(const StateLoss& a, const StateLoss& b) {
  return std::any_of(a.shards.begin(), a.shards.end(), [&](ShardId shard) {
    return std::find(b.shards.begin(), b.shards.end(), shard) != b.shards.end();
  });
}

// Those that both have are in `now` because workers still say them.
void AddEarlierUnevenSteps(const JobStatus& earlier, JobStatus& now) {
  std::set<Step> steps(earlier.newest_uneven_steps.begin(), earlier.newest_uneven_steps.end());
  const bool is_cut = earlier.uneven_steps > steps.size();
  const Step oldest = is_cut && !steps.empty() ? *steps.begin() : Step{};
  uint64_t both = 0;
  for (const Step step : now.newest_uneven_steps) {
    if (step < oldest || !steps.insert(step).second) ++both;
  }
  now.uneven_steps += earlier.uneven_steps - std::min(earlier.uneven_steps, both);
  while (steps.size() > JobStatus::kUnevenStepsMax) steps.erase(steps.begin());
  now.newest_uneven_steps.assign(steps.begin(), steps.end());
}

// A loss that was not over is the next coordinator's, who saw it anew.
std::vector<StateLoss> Sequence(const std::vector<StateLoss>& earlier,
                                const std::vector<StateLoss>& now) {
  std::vector<StateLoss> all;
  for (StateLoss loss : earlier) {
    const bool is_taken_up =
        !loss.is_repaired && std::any_of(now.begin(), now.end(), [&](const StateLoss& other) {
          return ShareAShard(loss, other);
        });
    if (is_taken_up) continue;
    loss.is_waiting = false;
    all.push_back(std::move(loss));
  }
  all.insert(all.end(), now.begin(), now.end());
  return all;
}

}  // namespace

JobStatus WithEarlier(const JobStatus& earlier, JobStatus now) {
  now.step = std::max(now.step, earlier.step);
  now.samples = std::max(now.samples, earlier.samples);
  now.bytes_pushed = std::max(now.bytes_pushed, earlier.bytes_pushed);
  now.bytes_pulled = std::max(now.bytes_pulled, earlier.bytes_pulled);
  now.bytes_replicated = std::max(now.bytes_replicated, earlier.bytes_replicated);
  now.resends = std::max(now.resends, earlier.resends);
  now.contributors_max = std::max(now.contributors_max, earlier.contributors_max);
  if (now.contributors_min == 0) {
    now.contributors_min = earlier.contributors_min;
  } else if (earlier.contributors_min > 0) {
    now.contributors_min = std::min(now.contributors_min, earlier.contributors_min);
  }
  AddEarlierUnevenSteps(earlier, now);
  now.sync_seconds = WithMore(earlier.sync_seconds, now.sync_seconds);
  for (size_t i = 0; i < kSyncPhaseCount; ++i)
    now.phase_seconds[i] = WithMore(earlier.phase_seconds[i], now.phase_seconds[i]);
  now.losses = Union(earlier.losses, now.losses);
  now.results.insert(earlier.results.begin(), earlier.results.end());
  now.resizes.insert(now.resizes.begin(), earlier.resizes.begin(), earlier.resizes.end());
  now.state_losses = Sequence(earlier.state_losses, now.state_losses);
  return now;
}

}  // namespace pushpull
