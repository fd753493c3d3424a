// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/status_history.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "runtime/consistency/view.h"

namespace pushpull {
namespace {

using Kind = HistoryEvent::Kind;

constexpr size_t kMembersNamed = 3;
// Only this many of the newest resizes and losses can be new: no more happen between two statuses.
constexpr size_t kNewest = 8;

double PerSecond(uint64_t before, uint64_t now, double seconds) {
  return now > before && seconds > 0 ? static_cast<double>(now - before) / seconds : 0;
}

constexpr char kTrainingBegins[] = "training begins";
// A job whose first status comes later than this was already training before.
constexpr double kJustBegunSeconds = 2;

// Training began just before its first status was taken.
bool HasJustBegun(const JobStatus& status) {
  return status.phase == JobPhase::kRunning && status.seconds < kJustBegunSeconds;
}

std::string NewCoordinator(const JobStatus& status) {
  return absl::StrCat("a new coordinator, term ", status.term.value());
}

// Collects what happened between two statuses, by topic.
class Events {
 public:
  Events(const JobStatus& before, const JobStatus& now) : before_(before), now_(now) {}

  std::vector<HistoryEvent> Take() {
    if (before_.term != now_.term) {
      Add(Kind::kFailure, NewCoordinator(now_));
    } else if (now_.phase != JobPhase::kRecovering && before_.phase != JobPhase::kRecovering) {
      AddServers();
      AddWorkers();
    }
    AddSizes();
    AddResizes();
    AddLosses();
    AddCheckpoints();
    AddMode();
    AddStall();
    AddPhase();
    return std::move(events_);
  }

 private:
  // Members named in one line: a thousand may change at once.
  using Names = std::vector<std::string>;

  void Add(Kind kind, std::string text) {
    events_.push_back({.step = now_.step, .kind = kind, .text = std::move(text)});
  }

  void Add(Kind kind, const Names& names, absl::string_view what) {
    if (names.empty()) return;
    const size_t named = std::min(names.size(), kMembersNamed);
    std::string text =
        absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(named), ", ");
    if (named < names.size()) absl::StrAppend(&text, " and ", names.size() - named, " more");
    Add(kind, absl::StrCat(text, " ", what));
  }

  void AddServers() {
    std::map<ServerId, uint64_t> pids;
    for (const ServerStatus& server : before_.servers) pids[server.server] = server.pid;
    Names joined;
    Names replaced;
    for (const ServerStatus& server : now_.servers) {
      const auto known = pids.extract(server.server);
      if (known.empty()) joined.push_back(ToString(server.server));
      if (!known.empty() && known.mapped() != server.pid)
        replaced.push_back(ToString(server.server));
    }
    Names left;
    Names lost;
    for (const auto& [server, pid] : pids)
      (server.value() < now_.desired_servers ? lost : left).push_back(ToString(server));
    Add(Kind::kFailure, lost, "lost");
    Add(Kind::kFailure, replaced, "lost and replaced");
    Add(Kind::kChange, left, "left");
    Add(Kind::kInfo, joined, "joined");
  }

  void AddWorkers() {
    std::map<WorkerId, const WorkerStatus*> known;
    for (const WorkerStatus& worker : before_.workers) known[worker.worker] = &worker;
    Names joined;
    Names replaced;
    Names lost;
    Names released;
    Names done;
    for (const WorkerStatus& worker : now_.workers) {
      const auto it = known.find(worker.worker);
      const bool was_alive = it != known.end() && it->second->is_alive;
      const std::string name = ToString(worker.worker);
      const bool was_left_out = it != known.end() && !it->second->left_out.empty();
      if (!worker.left_out.empty() && !was_left_out)
        Add(Kind::kFailure, absl::StrCat(name, " ", worker.left_out));
      if (worker.is_alive && !was_alive) joined.push_back(name);
      if (worker.is_alive && was_alive && worker.pid != it->second->pid) replaced.push_back(name);
      if (worker.is_alive || !was_alive) continue;
      (worker.has_left ? done : worker.was_released ? released : lost).push_back(name);
    }
    Add(Kind::kFailure, lost, "lost");
    Add(Kind::kFailure, replaced, "lost and replaced");
    Add(Kind::kChange, released, "released");
    Add(Kind::kInfo, joined, "joined");
    Add(Kind::kInfo, done, "done");
  }

  void AddSizes() {
    if (before_.desired_workers != 0 && before_.desired_workers != now_.desired_workers) {
      Add(Kind::kChange,
          absl::StrFormat(
              "workers: from %d to %d requested", before_.desired_workers, now_.desired_workers));
    }
    if (before_.batch != 0 && before_.global_batch != now_.global_batch)
      Add(Kind::kChange, absl::StrFormat("globalBatch: %d requested", now_.global_batch));
    // The request and its effect may fall between the same two statuses. Without globalBatch the
    // batch follows the number of workers.
    const bool is_in_force = now_.batch == now_.global_batch && now_.batch != before_.batch;
    if (before_.batch != 0 && now_.global_batch != 0 && is_in_force) {
      Add(Kind::kChange,
          absl::StrFormat(
              "globalBatch: steps have %d samples instead of %d", now_.batch, before_.batch));
    }
  }

  void AddResizes() {
    for (size_t i = FirstNew(now_.resizes.size()); i < now_.resizes.size(); ++i) {
      const ResizeStatus& resize = now_.resizes[i];
      const auto known = absl::c_find_if(before_.resizes, [&](const ResizeStatus& earlier) {
        return earlier.step == resize.step && earlier.from == resize.from &&
               earlier.to == resize.to;
      });
      const std::string what = absl::StrFormat("servers: from %d to %d", resize.from, resize.to);
      if (known == before_.resizes.end()) Add(Kind::kChange, what + " requested");
      // Its cost is known a little after it has settled.
      const bool was_final = known != before_.resizes.end() && known->is_final;
      if (!resize.is_final || was_final) continue;
      Add(Kind::kChange,
          absl::StrFormat("%s done in %.1f s, longest synchronization %.0f ms, %.1f MiB moved",
                          what,
                          resize.seconds,
                          resize.pause_seconds * 1e3,
                          static_cast<double>(resize.moved_bytes) / (1 << 20)));
    }
  }

  void AddLosses() {
    for (size_t i = FirstNew(now_.state_losses.size()); i < now_.state_losses.size(); ++i) {
      const StateLoss& loss = now_.state_losses[i];
      const auto known = absl::c_find_if(before_.state_losses, [&](const StateLoss& earlier) {
        return earlier.servers == loss.servers && earlier.shards == loss.shards;
      });
      const bool is_news =
          known == before_.state_losses.end() || known->is_repaired != loss.is_repaired;
      if (is_news) Add(Kind::kFailure, ToString(loss));
    }
  }

  void AddCheckpoints() {
    const CheckpointStatus& before = before_.checkpoint;
    const CheckpointStatus& now = now_.checkpoint;
    if (now.saved > before.saved) {
      Add(Kind::kInfo,
          absl::StrFormat("checkpoint of step %d saved in %.2f s", now.step.value(), now.seconds));
    }
    if (now.failures > before.failures)
      Add(Kind::kFailure, absl::StrCat("checkpoint failed: ", now.failure));
  }

  void AddMode() {
    const std::string mode = Describe(now_.consistency);
    if (now_.view > 0 && before_.view > 0 && mode != Describe(before_.consistency))
      Add(Kind::kChange, "mode: " + mode);
    if (!now_.mode_problem.empty() && now_.mode_problem != before_.mode_problem)
      Add(Kind::kFailure, now_.mode_problem);
  }

  void AddStall() {
    if (now_.stall && !before_.stall) Add(Kind::kFailure, "stalled: " + ToString(*now_.stall));
    if (!now_.stall && before_.stall) {
      Add(Kind::kInfo, absl::StrCat("step ", before_.stall->step.value(), " waits no longer"));
    }
  }

  void AddPhase() {
    if (before_.phase == now_.phase) return;
    if (now_.phase == JobPhase::kRunning && before_.phase == JobPhase::kStarting)
      Add(Kind::kInfo, kTrainingBegins);
    if (now_.phase == JobPhase::kRunning && before_.phase == JobPhase::kRecovering)
      Add(Kind::kInfo, "the new coordinator knows the job again");
    if (now_.phase == JobPhase::kSucceeded) Add(Kind::kInfo, "succeeded");
    if (now_.phase == JobPhase::kFailed) Add(Kind::kFailure, "failed: " + now_.failure);
  }

  static size_t FirstNew(size_t size) { return size > kNewest ? size - kNewest : 0; }

  const JobStatus& before_;
  const JobStatus& now_;
  std::vector<HistoryEvent> events_;
};

// Merges two neighbouring intervals; means are weighted by their numbers of synchronizations.
HistoryPoint Merged(const HistoryPoint& first, const HistoryPoint& second) {
  HistoryPoint both = second;
  both.syncs = first.syncs + second.syncs;
  const double share =
      both.syncs == 0 ? 0 : static_cast<double>(first.syncs) / static_cast<double>(both.syncs);
  const auto mean = [share](double a, double b) { return share * a + (1 - share) * b; };
  both.sync_seconds = mean(first.sync_seconds, second.sync_seconds);
  for (size_t i = 0; i < kSyncPhaseCount; ++i)
    both.phase_seconds[i] = mean(first.phase_seconds[i], second.phase_seconds[i]);
  both.samples_per_second = (first.samples_per_second + second.samples_per_second) / 2;
  both.pushed_per_second = (first.pushed_per_second + second.pushed_per_second) / 2;
  both.pulled_per_second = (first.pulled_per_second + second.pulled_per_second) / 2;
  both.replicated_per_second = (first.replicated_per_second + second.replicated_per_second) / 2;
  return both;
}

}  // namespace

std::string NameOf(HistoryEvent::Kind kind) {
  switch (kind) {
    case Kind::kInfo:
      return "info";
    case Kind::kChange:
      return "change";
    case Kind::kFailure:
      return "failure";
  }
  return "info";
}

std::vector<HistoryEvent> EventsBetween(const JobStatus& before, const JobStatus& now) {
  return Events(before, now).Take();
}

void StatusHistory::Add(double time, std::shared_ptr<const JobStatus> status) {
  time_ = time;
  const std::shared_ptr<const JobStatus> before = std::exchange(newest_, std::move(status));
  if (before == nullptr && newest_->phase == JobPhase::kRecovering) {
    events_.push_back({.time = time, .kind = Kind::kFailure, .text = NewCoordinator(*newest_)});
  } else if (before == nullptr && HasJustBegun(*newest_)) {
    events_.push_back({.time = time, .kind = Kind::kInfo, .text = kTrainingBegins});
  } else if (before != nullptr) {
    for (HistoryEvent& event : EventsBetween(*before, *newest_)) {
      event.time = time;
      events_.push_back(std::move(event));
    }
    while (events_.size() > kEventsMax) events_.pop_front();
  }
  // A new coordinator, or a job that starts again, has its own counts: differences to earlier ones
  // mean nothing.
  const bool counts_on = before != nullptr && before->term == newest_->term &&
                         before->samples <= newest_->samples && newest_->view > 0;
  if (!counts_on) counted_.clear();
  if (newest_->view == 0 || newest_->phase == JobPhase::kRecovering) return;
  if (!counted_.empty() && time - counted_.back().time < period_) return;
  if (!counted_.empty()) AddPoint(time);
  counted_.push_back({time, newest_});
  while (counted_.size() > 1 && time - counted_[1].time >= kRateSeconds) counted_.pop_front();
}

void StatusHistory::AddPoint(double time) {
  const JobStatus& before = *counted_.back().status;
  const JobStatus& base = *counted_.front().status;
  const double seconds = time - counted_.front().time;
  const Quantiles syncs = newest_->sync_seconds.Since(before.sync_seconds);
  HistoryPoint point{
      .time = time,
      .step = newest_->step,
      .syncs = syncs.count(),
      .sync_seconds = syncs.Mean(),
      .samples_per_second = PerSecond(base.samples, newest_->samples, seconds),
      .pushed_per_second = PerSecond(base.bytes_pushed, newest_->bytes_pushed, seconds),
      .pulled_per_second = PerSecond(base.bytes_pulled, newest_->bytes_pulled, seconds),
      .replicated_per_second =
          PerSecond(base.bytes_replicated, newest_->bytes_replicated, seconds)};
  for (size_t i = 0; i < kSyncPhaseCount; ++i)
    point.phase_seconds[i] = newest_->phase_seconds[i].Since(before.phase_seconds[i]).Mean();
  if (!newest_->losses.empty()) point.loss = newest_->losses.back().loss;
  points_.push_back(point);
  if (points_.size() <= kPointsMax) return;
  keeps_ == Keeps::kAll ? Halve() : points_.pop_front();
}

void StatusHistory::Halve() {
  std::deque<HistoryPoint> halved;
  for (size_t i = 0; i + 1 < points_.size(); i += 2)
    halved.push_back(Merged(points_[i], points_[i + 1]));
  if (points_.size() % 2 == 1) halved.push_back(points_.back());
  points_ = std::move(halved);
  period_ *= 2;
}

}  // namespace pushpull
