// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/status_rules.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"

#include "runtime/base/keep_newest.h"

namespace pushpull {
namespace {

const Quantiles& WithMore(const Quantiles& a, const Quantiles& b) {
  return a.count() > b.count() ? a : b;
}

// For a step that both have, takes the mean over more samples: `earlier` may lack what had not been
// reported yet, `now` the samples of a worker that has ended since. Too many points are thinned out
// the way each coordinator does it, so that its points are among those that stay.
std::vector<LossPoint> Union(const std::vector<LossPoint>& earlier,
                             const std::vector<LossPoint>& now) {
  std::map<Step, LossPoint> by_step;
  for (const std::vector<LossPoint>* points : {&earlier, &now}) {
    for (const LossPoint& point : *points) {
      const auto [known, is_new] = by_step.emplace(point.step, point);
      if (!is_new && point.samples > known->second.samples) known->second = point;
    }
  }
  for (uint64_t stride = 2; by_step.size() > JobStatus::kLossesMax; stride *= 2)
    std::erase_if(by_step, [&](const auto& entry) { return entry.first.value() % stride != 0; });
  std::vector<LossPoint> all;
  all.reserve(by_step.size());
  for (const auto& [step, point] : by_step) all.push_back(point);
  return all;
}

bool ShareAShard(const StateLoss& a, const StateLoss& b) {
  return absl::c_any_of(a.shards,
                        [&](ShardId shard) { return absl::c_linear_search(b.shards, shard); });
}

// Steps that both have are in `now` because workers still report them.
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

// A loss that was not over is in `now` as well: the next coordinator saw it again.
std::vector<StateLoss> Sequence(const std::vector<StateLoss>& earlier,
                                const std::vector<StateLoss>& now) {
  std::vector<StateLoss> all;
  for (const StateLoss& loss : earlier) {
    const auto shares = [&](const StateLoss& other) { return ShareAShard(loss, other); };
    if (!loss.is_repaired && absl::c_any_of(now, shares)) continue;
    all.push_back(loss);
    all.back().is_waiting = false;
  }
  absl::c_copy(now, std::back_inserter(all));
  KeepNewest(all, JobStatus::kStateLossesMax);
  return all;
}

}  // namespace

uint32_t DesiredCount(const JobStatus& status, JobRole role) {
  return role == JobRole::kWorker ? status.desired_workers : status.desired_servers;
}

bool IsDesired(const JobStatus& status, JobRole role, uint32_t index) {
  const uint32_t desired = DesiredCount(status, role);
  return desired == 0 || index < desired;
}

bool WasReleased(const JobStatus& status, uint32_t worker) {
  return absl::c_any_of(status.workers, [&](const WorkerStatus& it) {
    return it.worker.value() == worker && it.was_released && !it.is_alive;
  });
}

bool IsListed(const JobStatus& status, const Endpoint& server) {
  return absl::c_any_of(status.servers, [&](const ServerStatus& it) {
    return it.is_alive && it.server.value() == server.index &&
           static_cast<int64_t>(it.pid) == server.pid;
  });
}

bool HasJoinedWithin(const JobStatus& status, uint32_t worker, Duration time) {
  return absl::c_any_of(status.workers, [&](const WorkerStatus& it) {
    return it.worker.value() == worker && it.joined_seconds <= ToSeconds(time);
  });
}

bool HasSteppedWithin(const JobStatus& status, uint32_t worker, Duration time) {
  return absl::c_any_of(status.workers, [&](const WorkerStatus& it) {
    return it.worker.value() == worker && it.joined_seconds <= ToSeconds(time) && it.steps_made > 0;
  });
}

std::vector<LeftOutWorker> UnknownTo(const JobStatus& status,
                                     const std::map<WorkerId, std::string>& left_out) {
  std::set<WorkerId> known;
  std::set<WorkerId> done;
  for (const WorkerStatus& worker : status.workers) {
    if (!worker.left_out.empty()) known.insert(worker.worker);
    if (worker.has_left) done.insert(worker.worker);
  }
  std::vector<LeftOutWorker> unknown;
  for (const auto& [worker, why] : left_out) {
    if (!(why.empty() ? done : known).contains(worker)) unknown.push_back({worker, why});
  }
  return unknown;
}

bool IsTrainingWithout(const JobStatus& status, JobRole role, uint32_t index) {
  if (status.phase != JobPhase::kRunning) return false;
  return absl::c_any_of(status.workers, [&](const WorkerStatus& it) {
    const bool is_itself = role == JobRole::kWorker && it.worker.value() == index;
    return it.is_alive && !is_itself;
  });
}

bool IsAwaited(const JobStatus& status, uint32_t server) {
  return absl::c_any_of(status.state_losses, [&](const StateLoss& loss) {
    return loss.is_waiting && absl::c_linear_search(loss.servers, ServerId{server});
  });
}

bool HasLastStatistics(const JobStatus& status) {
  return absl::c_all_of(status.servers, [&](const ServerStatus& server) {
    return server.stats.chunks == 0 || server.stats.highest_version >= status.step;
  });
}

bool IsStuck(const JobStatus& status) {
  return status.stall.has_value() || HasNoWorker(status);
}

bool HasNoWorker(const JobStatus& status) {
  return absl::c_none_of(status.workers,
                         [](const WorkerStatus& it) { return it.is_alive && it.is_member; });
}

Step LastSaved(const JobStatus& status) {
  const CheckpointStatus& checkpoint = status.checkpoint;
  return checkpoint.saved > 0 ? checkpoint.step : checkpoint.restored_step.value_or(Step{});
}

bool IsSaved(const JobStatus& status) {
  return status.checkpoint.finished == status.checkpoint.requested;
}

JobStatus WithEarlier(const JobStatus& earlier, JobStatus now) {
  now.samples = std::max(now.samples, earlier.samples);
  now.bytes_pushed = std::max(now.bytes_pushed, earlier.bytes_pushed);
  now.bytes_pulled = std::max(now.bytes_pulled, earlier.bytes_pulled);
  now.bytes_replicated = std::max(now.bytes_replicated, earlier.bytes_replicated);
  now.resends = std::max(now.resends, earlier.resends);
  now.step = std::max(now.step, earlier.step);
  now.steps_made = std::max(now.steps_made, earlier.steps_made);
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
  KeepNewest(now.resizes, JobStatus::kResizesMax);
  now.state_losses = Sequence(earlier.state_losses, now.state_losses);
  return now;
}

}  // namespace pushpull
