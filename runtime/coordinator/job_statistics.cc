// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/job_statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/types/span.h"

#include "runtime/store/gradient_noise.h"

namespace pushpull {
namespace {

// The losses in the newer report that earlier ones did not have. In the first report of a session a
// worker repeats what it has reported before.
absl::Span<const LossPoint> NewLosses(const WorkerStats& older, const WorkerStats& newer) {
  const absl::Span<const LossPoint> losses = newer.losses;
  const uint64_t first = newer.losses_end - std::min<uint64_t>(newer.losses_end, losses.size());
  const uint64_t known = older.losses_end > first ? older.losses_end - first : 0;
  return losses.subspan(std::min<uint64_t>(known, losses.size()));
}

}  // namespace

void JobStatistics::OnWorker(WorkerId worker, const WorkerStats& stats) {
  WorkerStats& kept = workers_[worker];
  for (const LossPoint& point : NewLosses(kept, stats)) AddLoss(point);
  for (const Step step : stats.uneven_steps) AddUneven(step);
  if (!stats.results.empty()) results_[worker] = stats.results;
  if (stats.batch > 0) batch_ = stats.batch;
  kept = stats;
  kept.losses.clear();
}

// The batch is that of the newest report: one server at a time divides the samples.
void JobStatistics::OnServer(ServerId server, const ServerStats& stats) {
  servers_[server] = stats;
  if (stats.batch > 0) batch_ = stats.batch;
  if (stats.gradient_variance != 0) UpdateNoise();
}

// An average of sums is a sum of averages, so the servers' parts add up. The last known value is
// kept.
void JobStatistics::UpdateNoise() {
  GradientNoise noise;
  for (const auto& [server, stats] : servers_)
    noise += {.squares = stats.gradient_squares, .variance = stats.gradient_variance};
  noise_scale_ = noise.scale().value_or(noise_scale_);
}

void JobStatistics::RetireWorker(WorkerId worker) {
  last_steps_made_[worker] = StepsMade(worker, true);
  const auto it = workers_.find(worker);
  if (it == workers_.end()) return;
  Accumulate(it->second, retired_);
  retired_.step = std::max(retired_.step, it->second.step);
  workers_.erase(it);
}

void JobStatistics::RetireServer(ServerId server) {
  const auto it = servers_.find(server);
  if (it == servers_.end()) return;
  Accumulate(it->second, retired_servers_);
  servers_.erase(it);
}

Step JobStatistics::WorkerStep(WorkerId worker) const {
  const auto it = workers_.find(worker);
  return it == workers_.end() ? Step{0} : it->second.step;
}

uint64_t JobStatistics::StepsMade(WorkerId worker, bool is_present) const {
  if (is_present) {
    const auto it = workers_.find(worker);
    return it == workers_.end() ? 0 : it->second.steps_made;
  }
  const auto it = last_steps_made_.find(worker);
  return it == last_steps_made_.end() ? 0 : it->second;
}

WorkerActivity JobStatistics::Activity(WorkerId worker) const {
  const auto it = workers_.find(worker);
  return it == workers_.end() ? WorkerActivity{} : it->second.activity;
}

Step JobStatistics::HighestVersion() const {
  Step highest = retired_servers_.highest_version;
  for (const auto& [server, stats] : servers_) highest = std::max(highest, stats.highest_version);
  return highest;
}

Step JobStatistics::HighestWorkerStep() const {
  Step highest;
  for (const auto& [worker, stats] : workers_) highest = std::max(highest, stats.step);
  return highest;
}

ServerStats JobStatistics::Server(ServerId server) const {
  const auto it = servers_.find(server);
  return it == servers_.end() ? ServerStats{} : it->second;
}

ResizeLog::Totals JobStatistics::ResizeTotals() const {
  ResizeLog::Totals totals{retired_.sync_seconds, retired_servers_.bytes_copied};
  for (const auto& [worker, stats] : workers_) totals.sync_seconds.Merge(stats.sync_seconds);
  for (const auto& [server, stats] : servers_) totals.bytes_copied += stats.bytes_copied;
  return totals;
}

void JobStatistics::AddTo(JobStatus& status) const {
  WorkerStats total = retired_;
  for (const auto& [worker, stats] : workers_) {
    Accumulate(stats, total);
    total.step = std::max(total.step, stats.step);
  }
  status.step = total.step;
  status.steps_made = total.steps_made;
  status.samples = total.samples;
  status.batch = batch_;
  status.noise_scale = noise_scale_;
  status.bytes_pushed = total.bytes_pushed;
  status.bytes_pulled = total.bytes_pulled;
  status.resends = total.resends;
  status.sync_seconds = total.sync_seconds;
  status.phase_seconds = total.phase_seconds;
  ServerStats servers = retired_servers_;
  for (const auto& [server, stats] : servers_) Accumulate(stats, servers);
  status.bytes_replicated = servers.bytes_replicated;
  status.contributors_min = servers.contributors_min;
  status.contributors_max = servers.contributors_max;
  status.uneven_steps = uneven_count_;
  status.newest_uneven_steps.assign(uneven_steps_.begin(), uneven_steps_.end());
  for (const auto& [step, loss] : losses_) {
    status.losses.push_back(
        {step, loss.weighted / static_cast<double>(loss.samples), loss.samples});
  }
  std::map<std::string, int> counts;
  for (const auto& [worker, results] : results_) {
    for (const auto& [name, value] : results) {
      status.results[name] += value;
      ++counts[name];
    }
  }
  for (auto& [name, value] : status.results) value /= counts[name];
}

void JobStatistics::AddLoss(const LossPoint& point) {
  // A NaN would corrupt the mean, and JSON has no notation for it.
  if (point.step.value() % loss_stride_ != 0 || point.samples == 0 || !std::isfinite(point.loss))
    return;
  Loss& loss = losses_[point.step];
  loss.weighted += point.loss * static_cast<double>(point.samples);
  loss.samples += point.samples;
  if (losses_.size() <= JobStatus::kLossesMax) return;
  loss_stride_ *= 2;
  std::erase_if(losses_,
                [&](const auto& entry) { return entry.first.value() % loss_stride_ != 0; });
}

// Every worker of the step reports it, in each of its heartbeats.
void JobStatistics::AddUneven(Step step) {
  const bool is_full = uneven_steps_.size() == JobStatus::kUnevenStepsMax;
  if (is_full && step < *uneven_steps_.begin()) return;  // it was counted before the others
  if (!uneven_steps_.insert(step).second) return;
  ++uneven_count_;
  if (is_full) uneven_steps_.erase(uneven_steps_.begin());
}

void JobStatistics::Accumulate(const WorkerStats& from, WorkerStats& into) {
  into.steps_made += from.steps_made;
  into.samples += from.samples;
  into.bytes_pushed += from.bytes_pushed;
  into.bytes_pulled += from.bytes_pulled;
  into.resends += from.resends;
  into.sync_seconds.Merge(from.sync_seconds);
  for (size_t i = 0; i < kSyncPhaseCount; ++i) into.phase_seconds[i].Merge(from.phase_seconds[i]);
}

void JobStatistics::Accumulate(const ServerStats& from, ServerStats& into) {
  into.bytes_replicated += from.bytes_replicated;
  into.bytes_copied += from.bytes_copied;
  into.highest_version = std::max(into.highest_version, from.highest_version);
  if (from.contributors_max == 0) return;
  into.contributors_min = into.contributors_max == 0
                              ? from.contributors_min
                              : std::min(into.contributors_min, from.contributors_min);
  into.contributors_max = std::max(into.contributors_max, from.contributors_max);
}

void ResizeLog::Begin(SteadyTime now, ResizeStatus resize, Totals totals) {
  if (resizes_.size() == JobStatus::kResizesMax) resizes_.erase(resizes_.begin());
  resizes_.push_back(resize);
  began_at_ = now;
  before_ = std::move(totals);
}

void ResizeLog::Update(SteadyTime now, bool is_settled, const Totals& totals) {
  if (!is_open()) return;
  ResizeStatus& resize = resizes_.back();
  resize.pause_seconds = totals.sync_seconds.Since(before_.sync_seconds).At(1);
  resize.moved_bytes = totals.bytes_copied - before_.bytes_copied;
  if (resize.is_settled) {
    resize.is_final = now - settled_at_ >= 2 * report_period_;
    return;
  }
  resize.seconds = ToSeconds(now - began_at_);
  resize.is_settled = is_settled;
  settled_at_ = now;
}

}  // namespace pushpull
