// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/conditions.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "operator/plan/members.h"
#include "operator/plan/restarts.h"

namespace pushpull_operator {

using pushpull::JobRole;

namespace {

// Between two writes of what changes all the time.
constexpr std::chrono::seconds kNewsPeriod{60};
// A failed coordinator, a new epoch: what no pod tells.
constexpr std::chrono::seconds kAskPeriod{30};

int64_t CountWorkersDone(const Draft& draft) {
  return std::count_if(draft.over.begin(), draft.over.end(), [](const MemberId& member) {
    return member.role == JobRole::kWorker;
  });
}

void DescribeRing(Draft& draft) {
  const CoordinatorWord* word = draft.word();
  if (word == nullptr || word->epoch == 0) return;
  RingStatus ring = draft.status().ring.value_or(RingStatus{});
  ring.epoch = word->epoch;
  ring.state = word->shards_moving > 0 ? "Resharding" : "Stable";
  draft.status().ring = ring;
}

bool HasSaved(Draft& draft) {
  const CoordinatorWord* word = draft.word();
  const std::optional<SavedCheckpoint>& saved = draft.status().checkpoint;
  return word != nullptr && draft.spec().checkpoint &&
         word->checkpoint_step > (saved ? saved->step : 0);
}

std::map<std::string, std::string> ResultsOf(const CoordinatorWord& word) {
  std::map<std::string, std::string> results;
  for (const auto& [name, value] : word.results) results[name] = absl::StrFormat("%.6g", value);
  return results;
}

bool HasProgressed(Draft& draft) {
  const CoordinatorWord* word = draft.word();
  if (word == nullptr) return false;
  const ProgressStatus told = draft.status().progress.value_or(ProgressStatus{});
  return word->step != told.step || ResultsOf(*word) != told.results;
}

WallTime NextNews(Draft& draft) {
  // What is written before a suspension, and at the end, is the last that can be told.
  if ((draft.spec().suspend && HasSaved(draft)) || draft.IsFinished()) return draft.now();
  const std::optional<SavedCheckpoint>& saved = draft.status().checkpoint;
  WallTime last{};
  if (saved && saved->time) last = *saved->time;
  if (draft.seen().news_time) last = std::max(last, *draft.seen().news_time);
  return last + kNewsPeriod;
}

// Checkpoint and progress, which change all the time, in one write.
void DescribeNews(Draft& draft) {
  const bool has_saved = HasSaved(draft);
  const bool has_progressed = HasProgressed(draft);
  if (!has_saved && !has_progressed) return;
  const WallTime next = NextNews(draft);
  if (draft.now() < next) return draft.LookAgain(next);
  const CoordinatorWord& word = *draft.word();
  if (has_saved) {
    const pushpull::CheckpointSpec& spec = *draft.spec().checkpoint;
    draft.status().checkpoint = SavedCheckpoint{
        .step = word.checkpoint_step,
        .time = draft.now(),
        .location = spec.uri.empty() ? absl::StrCat(spec.claim, ":", spec.path) : spec.uri};
  }
  if (has_progressed) {
    draft.status().progress =
        ProgressStatus{.step = word.step,
                       .samples_per_second = absl::StrFormat("%.1f", word.samples_per_second),
                       .sync_seconds_p50 = absl::StrFormat("%.6f", word.sync_seconds_p50),
                       .sync_seconds_p99 = absl::StrFormat("%.6f", word.sync_seconds_p99),
                       .results = ResultsOf(word)};
  }
}

// Each loss once, when it is known what took its place. In the order of the coordinator's list, so
// that a number is enough to remember which were told.
void DescribeLosses(Draft& draft) {
  const CoordinatorWord* word = draft.word();
  if (word == nullptr || word->losses.empty()) return;
  LossesStatus losses = draft.status().losses.value_or(LossesStatus{});
  if (losses.term != word->term) {
    losses.term = word->term;
    losses.told = 0;
  }
  for (auto next = static_cast<size_t>(losses.told); next < word->losses.size(); ++next) {
    const LossWord& loss = word->losses[next];
    if (!loss.is_over) break;
    ++losses.told;
    if (loss.is_undone) continue;
    ++losses.counted;
    losses.last = LastLoss{.message = loss.text, .time = draft.now()};
    draft.Tell(Event::Kind::kWarning, "ShardsLost", "Rebuild", loss.text);
  }
  // A list in which nothing is over yet is nothing to remember.
  if (losses.told > 0) draft.status().losses = losses;
}

bool IsReady(Draft& draft) {
  const TrainingJobStatus& status = draft.status();
  const CoordinatorWord* word = draft.word();
  return status.coordinator.is_ready && word != nullptr &&
         word->phase != CoordinatorWord::Phase::kStarting &&
         status.servers.ready >= draft.spec().servers.replicas &&
         status.workers.ready + status.workers.succeeded >= draft.spec().workers.replicas;
}

std::string ReadyMessage(Draft& draft) {
  const TrainingJobStatus& status = draft.status();
  return absl::StrCat("coordinator ",
                      status.coordinator.is_ready ? "ready" : "not ready",
                      ", servers ",
                      status.servers.ready,
                      " of ",
                      draft.spec().servers.replicas,
                      ", workers ",
                      status.workers.ready + status.workers.succeeded,
                      " of ",
                      draft.spec().workers.replicas);
}

// Whether another size is wanted than there is; a change that has begun lasts until its shards are
// in their places.
bool IsScaling(Draft& draft) {
  const CoordinatorWord& word = *draft.word();
  const bool differs = word.servers_wanted != draft.spec().servers.replicas ||
                       word.workers_wanted != draft.spec().workers.replicas;
  if (differs && word.phase == CoordinatorWord::Phase::kRunning && !IsCoolingDown(draft))
    return true;
  if (!Leaving(draft, JobRole::kServer).empty() || !Leaving(draft, JobRole::kWorker).empty())
    return true;
  return draft.status().phase == Phase::kScaling && (word.shards_moving > 0 || !IsReady(draft));
}

void DescribePhase(Draft& draft) {
  if (draft.status().phase == Phase::kStarting) {
    if (IsReady(draft)) draft.SetPhase(Phase::kRunning);
    return;
  }
  if (draft.word() == nullptr) return;
  draft.SetPhase(IsScaling(draft) ? Phase::kScaling : Phase::kRunning);
}

void DescribeScaling(Draft& draft) {
  const bool is_scaling = draft.status().phase == Phase::kScaling;
  draft.Set(
      "Scaling",
      is_scaling,
      is_scaling ? "Resizing" : "SizeReached",
      absl::StrCat(
          "servers ", draft.spec().servers.replicas, ", workers ", draft.spec().workers.replicas));
  if (!is_scaling) return draft.Set("ScalingBlocked", false, "SizeReached", "");
  draft.LookAgainSoon();
  const WallTime late = *draft.status().phase_time + draft.spec().scaling.drain_timeout;
  if (draft.now() < late) {
    draft.LookAgain(late);
    return draft.Set("ScalingBlocked", false, "InTime", "");
  }
  std::vector<std::string> names;
  for (const MemberId& server : Leaving(draft, JobRole::kServer))
    names.push_back(draft.NameOf(server));
  draft.Set("ScalingBlocked",
            true,
            "DrainTimeout",
            absl::StrCat("the size is not reached after spec.scaling.drainTimeoutSeconds",
                         names.empty() ? "" : "; still there: ",
                         absl::StrJoin(names, ", "),
                         "; training goes on, scaling back cancels the change"));
}

void DescribeTrouble(Draft& draft) {
  for (const auto& [member, pod] : draft.pods()) {
    if (const std::optional<StartProblem> problem = StartProblemOf(*pod.seen))
      return draft.Set("Degraded", true, problem->reason, problem->message);
  }
  for (const MemberRestart& record : draft.status().restarts.members) {
    if (!record.next_at || draft.now() >= *record.next_at) continue;
    return draft.Set("Degraded",
                     true,
                     "WaitingForRestart",
                     absl::StrCat(record.pod, " starts again at ", ToText(*record.next_at)));
  }
  const bool is_silent = draft.status().coordinator.is_ready && draft.word() == nullptr;
  if (is_silent) {
    return draft.Set(
        "Degraded", true, "CoordinatorSilent", "the coordinator gives no complete answer");
  }
  if (draft.word() != nullptr && !draft.word()->sync_problem.empty() &&
      draft.word()->sync != WantedSync(draft)) {
    return draft.Set("Degraded",
                     true,
                     "SyncNotChanged",
                     absl::StrCat("spec.sync is not in force: ", draft.word()->sync_problem));
  }
  draft.Set("Degraded", false, "AllWell", "");
}

}  // namespace

void DescribePods(Draft& draft) {
  TrainingJobStatus& status = draft.status();
  const std::string& job = draft.seen().meta.key.name;
  status.observed_generation = draft.seen().meta.generation;
  status.servers = {.selector = SelectorOf(job, JobRole::kServer)};
  // Who was done is not judged again once the job has ended.
  const bool was_finished = draft.seen().object.status.completion_time.has_value();
  status.workers = {.succeeded = was_finished ? status.workers.succeeded : CountWorkersDone(draft),
                    .selector = SelectorOf(job, JobRole::kWorker)};
  status.coordinator.is_ready = false;
  for (const auto& [member, pod] : draft.pods()) {
    if (pod.end) continue;
    const int64_t ready = pod.seen->pod.is_ready && !pod.is_deleting() ? 1 : 0;
    if (member.role == JobRole::kCoordinator) status.coordinator.is_ready = ready == 1;
    if (member.role == JobRole::kServer) {
      ++status.servers.replicas;
      status.servers.ready += ready;
    }
    if (member.role == JobRole::kWorker) {
      ++status.workers.replicas;
      status.workers.ready += ready;
    }
  }
  for (const MemberId& server : Leaving(draft, JobRole::kServer)) {
    if (!draft.Find(server)->end) ++status.servers.draining;
  }
}

void DescribeRunning(Draft& draft) {
  DescribePhase(draft);
  DescribeRing(draft);
  DescribeLosses(draft);
  DescribeNews(draft);
  const bool is_ready = IsReady(draft);
  draft.Set("Ready", is_ready, is_ready ? "AllReady" : "MembersMissing", ReadyMessage(draft));
  DescribeScaling(draft);
  DescribeTrouble(draft);
  if (draft.status().phase == Phase::kStarting) draft.LookAgainSoon();
  draft.LookAgain(draft.now() + kAskPeriod);
}

void DescribeStopped(Draft& draft, const std::string& reason, const std::string& message) {
  DescribeLosses(draft);
  DescribeNews(draft);
  draft.Set("Ready", false, reason, message);
  for (const char* type : {"Scaling", "ScalingBlocked", "Degraded"}) {
    draft.Set(type, false, reason, "");
  }
}

}  // namespace pushpull_operator
