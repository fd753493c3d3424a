// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "operator/plan/parts.h"
#include "runtime/job/checkpoint_place.h"

namespace pushpull_operator {

using pushpull::JobRole;

namespace {

// Between two writes of fields that change with every step.
constexpr std::chrono::seconds kProgressPeriod{60};
// A member that has not registered after this time is named.
constexpr std::chrono::minutes kAwaitedFor{1};
// To notice a failed coordinator or a new epoch, with which no pod changes.
constexpr std::chrono::seconds kAskPeriod{30};

// Conditions that say more than Ready, with the status in which they do; most important first.
constexpr std::pair<const char*, bool> kSummaries[] = {{"Failed", true},
                                                       {"Complete", true},
                                                       {"Reconciled", false},
                                                       {"Suspended", true},
                                                       {"ScalingBlocked", true},
                                                       {"Degraded", true},
                                                       {"CheckpointFailed", true},
                                                       {"Stalled", true},
                                                       {"Scaling", true}};

int64_t CountWorkersDone(const Draft& draft) {
  return std::ranges::count_if(draft.finished_members(), [](const auto& member) {
    return member.first.role == JobRole::kWorker && member.second.empty();
  });
}

void DescribeRing(Draft& draft) {
  const CoordinatorReport* report = draft.report();
  if (report == nullptr || report->epoch == 0) return;
  RingStatus ring = draft.status().ring.value_or(RingStatus{});
  ring.epoch = report->epoch;
  ring.state = report->shards_moving > 0 ? "Resharding" : "Stable";
  draft.status().ring = ring;
}

bool HasSaved(Draft& draft) {
  const CoordinatorReport* report = draft.report();
  const std::optional<SavedCheckpoint>& saved = draft.status().checkpoint;
  return report != nullptr && draft.spec().checkpoint &&
         report->checkpoint_step > (saved ? saved->step : 0);
}

std::map<std::string, std::string> ResultsOf(const CoordinatorReport& report) {
  std::map<std::string, std::string> results;
  for (const auto& [name, value] : report.results) results[name] = absl::StrFormat("%.6g", value);
  return results;
}

bool HasProgressed(Draft& draft) {
  const CoordinatorReport* report = draft.report();
  if (report == nullptr) return false;
  const ProgressStatus told = draft.status().progress.value_or(ProgressStatus{});
  return report->step != told.step || ResultsOf(*report) != told.results;
}

WallTime NextProgressWrite(Draft& draft) {
  // Before a suspension and at the end, this is the last chance to write it.
  if ((draft.spec().suspend && HasSaved(draft)) || draft.IsFinished()) return draft.now();
  const std::optional<SavedCheckpoint>& saved = draft.status().checkpoint;
  WallTime last{};
  if (saved && saved->time) last = *saved->time;
  if (draft.seen().progress_time) last = std::max(last, *draft.seen().progress_time);
  return last + kProgressPeriod;
}

// As kubectl prints the duration of a Job: two units at most.
std::string DurationText(std::chrono::seconds time) {
  const int64_t seconds = time.count();
  if (seconds >= 86'400) return absl::StrCat(seconds / 86'400, "d", seconds % 86'400 / 3'600, "h");
  if (seconds >= 3'600) return absl::StrCat(seconds / 3'600, "h", seconds % 3'600 / 60, "m");
  if (seconds >= 60) return absl::StrCat(seconds / 60, "m", seconds % 60, "s");
  return absl::StrCat(seconds, "s");
}

// Changes with time alone, so it is written only along with something else.
void DescribeDuration(Draft& draft) {
  TrainingJobStatus& status = draft.status();
  if (status.start_time)
    status.duration =
        DurationText(status.completion_time.value_or(draft.now()) - *status.start_time);
}

// Checkpoint and progress, which change with every step, in one write.
void DescribeProgress(Draft& draft) {
  const bool has_saved = HasSaved(draft);
  const bool has_progressed = HasProgressed(draft);
  if (!has_saved && !has_progressed) return;
  const WallTime next = NextProgressWrite(draft);
  if (draft.now() < next) return draft.RequeueAt(next);
  const CoordinatorReport& report = *draft.report();
  if (has_saved) {
    const pushpull::CheckpointSpec& spec = *draft.spec().checkpoint;
    const ObjectKey& key = draft.seen().meta.key;
    const std::string folder = pushpull::JobCheckpoints(
        spec.path, {.name = key.name, .namespace_name = key.object_namespace});
    draft.status().checkpoint = SavedCheckpoint{.step = report.checkpoint_step,
                                                .time = draft.now(),
                                                .location = absl::StrCat(spec.claim, ":", folder)};
  }
  if (has_progressed) {
    draft.status().progress =
        ProgressStatus{.step = report.step,
                       .samples_per_second = absl::StrFormat("%.1f", report.samples_per_second),
                       .sync_seconds_p50 = absl::StrFormat("%.6f", report.sync_seconds_p50),
                       .sync_seconds_p99 = absl::StrFormat("%.6f", report.sync_seconds_p99),
                       .results = ResultsOf(report)};
  }
  DescribeDuration(draft);
}

void DescribeCheckpoint(Draft& draft) {
  if (!draft.spec().checkpoint) {
    return draft.Set("CheckpointFailed",
                     false,
                     "NoCheckpoint",
                     "spec.checkpoint is not set: a suspended job loses its steps");
  }
  const CoordinatorReport* report = draft.report();
  if (report == nullptr) return;
  const bool fails = !report->checkpoint_problem.empty();
  draft.Set(
      "CheckpointFailed",
      fails,
      fails ? "SaveFailed" : "AllWell",
      fails ? report->checkpoint_problem : "the volume can be written, the last save went well");
}

// The message stays that of a stall's first report: its times become outdated, but each new message
// would be a write.
void DescribeStall(Draft& draft) {
  const CoordinatorReport* report = draft.report();
  if (report == nullptr) return;
  if (report->stall.empty())
    return draft.Set("Stalled", false, "StepsProceed", "no step waits for a worker for too long");
  const Condition* told = FindCondition(draft.status().conditions, "Stalled");
  const bool is_told = told != nullptr && told->status == kConditionTrue &&
                       absl::StartsWith(told->message, report->stall_headline);
  draft.Set("Stalled", true, "WorkersMissing", is_told ? told->message : report->stall);
}

// Reports each loss once, when its replacement is known, in the order of the coordinator's list, so
// that a number is enough to remember which were reported.
void DescribeLosses(Draft& draft) {
  const CoordinatorReport* report = draft.report();
  if (report == nullptr || report->losses.empty()) return;
  LossesStatus losses = draft.status().losses.value_or(LossesStatus{});
  if (losses.term != report->term) {
    losses.term = report->term;
    losses.told = 0;
  }
  for (auto next = static_cast<size_t>(losses.told); next < report->losses.size(); ++next) {
    const LossReport& loss = report->losses[next];
    if (!loss.is_repaired) break;
    ++losses.told;
    if (loss.is_undone) continue;
    ++losses.counted;
    losses.last = LastLoss{.message = loss.text, .time = draft.now()};
    draft.AddEvent(Event::Kind::kWarning, "ShardsLost", "Rebuild", loss.text);
  }
  // While no loss in the list is over, there is nothing to remember.
  if (losses.told > 0) draft.status().losses = losses;
}

// At which step training has begun again, told once; before DescribeProgress, because without
// checkpoints the status alone says which step the job had reached.
void DescribeResumption(Draft& draft) {
  const CoordinatorReport* report = draft.report();
  if (report == nullptr || !report->began_step) return;
  const std::optional<ProgressStatus>& told = draft.status().progress;
  const int64_t before = std::max(report->step_before, told ? told->step : 0);
  const int64_t step = *report->began_step;
  const std::string headline =
      absl::StrCat("training under term ", report->term, " began at step ", step);
  const Condition* known = FindCondition(draft.status().conditions, "Resumed");
  const bool is_told = known != nullptr && absl::StartsWith(known->message, headline + ",");
  if (is_told || before == 0) return;
  const bool is_lost = before > step;
  const char* reason = is_lost ? "StepsLost" : "Resumed";
  const std::string message = is_lost ? absl::StrCat(headline,
                                                     ", the job had reached step ",
                                                     before,
                                                     ": the steps between are lost and made again")
                                      : absl::StrCat(headline, ", where the job was");
  draft.AddEvent(is_lost ? Event::Kind::kWarning : Event::Kind::kNormal, reason, "Resume", message);
  draft.Set("Resumed", true, reason, message, Telling::kQuiet);
}

bool IsReady(Draft& draft) {
  const TrainingJobStatus& status = draft.status();
  const CoordinatorReport* report = draft.report();
  return status.coordinator.is_ready && report != nullptr &&
         report->phase != pushpull::JobPhase::kStarting &&
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

// Whether the desired size differs from the present one; a resize lasts until its shards are
// placed.
bool IsScaling(Draft& draft) {
  const CoordinatorReport& report = *draft.report();
  const bool differs = report.desired_servers != draft.spec().servers.replicas ||
                       report.desired_workers != draft.spec().workers.replicas;
  if (differs && report.phase == pushpull::JobPhase::kRunning && !IsCoolingDown(draft)) return true;
  if (!Leaving(draft, JobRole::kServer).empty() || !Leaving(draft, JobRole::kWorker).empty())
    return true;
  return draft.status().phase == Phase::kScaling && (report.shards_moving > 0 || !IsReady(draft));
}

void DescribePhase(Draft& draft) {
  if (draft.status().phase == Phase::kStarting) {
    if (IsReady(draft)) draft.SetPhase(Phase::kRunning);
    return;
  }
  if (draft.report() == nullptr) return;
  draft.SetPhase(IsScaling(draft) ? Phase::kScaling : Phase::kRunning);
}

// How a member ended, if that is still known.
std::string CauseOf(Draft& draft, const MemberRestart& record) {
  const std::optional<LastRestart>& last = draft.status().restarts.last;
  return last && last->pod == record.pod ? absl::StrCat(": ", last->message) : "";
}

// A desired member that has ended and has not been ready since; null: there is none.
const MemberRestart* MemberThatIsMissed(Draft& draft) {
  for (const MemberRestart& record : draft.status().restarts.members) {
    const std::optional<MemberId> member = MemberOfPod(draft.seen().meta.key.name, record.pod);
    if (record.in_a_row == 0 || !member || member->index >= draft.DesiredNow(member->role))
      continue;
    if (draft.finished_members().contains(*member)) continue;
    const MemberPod* pod = draft.Find(*member);
    const bool is_back =
        pod != nullptr && !pod->end && !pod->is_deleting() && pod->seen->pod.is_ready;
    if (!is_back) return &record;
  }
  return nullptr;
}

void DescribeScaling(Draft& draft) {
  const bool is_scaling = draft.status().phase == Phase::kScaling;
  draft.Set(
      "Scaling",
      is_scaling,
      is_scaling ? "Resizing" : "SizeReached",
      absl::StrCat(
          "servers ", draft.spec().servers.replicas, ", workers ", draft.spec().workers.replicas));
  if (!is_scaling)
    return draft.Set("ScalingBlocked", false, "SizeReached", "the size is that of the spec");
  draft.RequeueSoon();
  if (const MemberRestart* missed = MemberThatIsMissed(draft)) {
    return draft.Set("ScalingBlocked",
                     true,
                     "MemberNotReady",
                     absl::StrCat(missed->pod,
                                  " has ended and is started again",
                                  CauseOf(draft, *missed),
                                  "; training goes on, scaling back cancels the change"));
  }
  const WallTime late = *draft.status().phase_time + draft.spec().scaling.drain_timeout;
  if (draft.now() < late) {
    draft.RequeueAt(late);
    return draft.Set("ScalingBlocked",
                     false,
                     "InTime",
                     absl::StrCat("spec.scaling.drainTimeoutSeconds are over at ", ToText(late)));
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

// For a member that has ended: its restart is due later, or its next process is not ready yet.
std::optional<StartProblem> RestartTrouble(Draft& draft) {
  for (const MemberRestart& record : draft.status().restarts.members) {
    if (!record.next_at || draft.now() >= *record.next_at) continue;
    return StartProblem{
        "WaitingForRestart",
        absl::StrCat(
            record.pod, " starts again at ", ToText(*record.next_at), CauseOf(draft, record))};
  }
  const MemberRestart* missed = MemberThatIsMissed(draft);
  if (missed == nullptr) return std::nullopt;
  return StartProblem{
      "MemberNotReady",
      absl::StrCat(missed->pod, " has ended and is started again", CauseOf(draft, *missed))};
}

std::optional<StartProblem> SidecarTrouble(const Draft& draft) {
  for (const auto& [member, pod] : draft.pods()) {
    if (pod.end) continue;
    if (std::optional<StartProblem> problem = SidecarProblemOf(*pod.seen)) return problem;
  }
  return std::nullopt;
}

// Why the coordinator does not change to the desired settings; empty: it does, or already has.
std::string SyncProblem(const Draft& draft) {
  const CoordinatorReport* report = draft.report();
  if (report == nullptr || report->sync == DesiredSync(draft)) return "";
  const std::optional<SyncRefusal>& refusal = draft.seen().sync_refusal;
  if (refusal && refusal->asked == DesiredSync(draft)) return refusal->message;
  return report->sync_problem;
}

std::optional<StartProblem> LeftOutTrouble(const Draft& draft) {
  for (const auto& [worker, why] : draft.finished_members()) {
    if (!why.empty())
      return StartProblem{"WorkerLeftOut", absl::StrCat(draft.NameOf(worker), " ", why)};
  }
  return std::nullopt;
}

// What keeps the job from running as it should; nothing: all is well.
std::optional<StartProblem> TroubleOf(Draft& draft) {
  for (const auto& [member, pod] : draft.pods()) {
    if (std::optional<StartProblem> problem = StartProblemOf(*pod.seen)) return problem;
  }
  if (std::optional<StartProblem> trouble = RestartTrouble(draft)) return trouble;
  const CoordinatorReport* report = draft.report();
  if (draft.status().coordinator.is_ready && report == nullptr) {
    return StartProblem{"CoordinatorSilent",
                        "the coordinator does not report the complete state of the job"};
  }
  const std::string awaited = AwaitedMembers(draft, kAwaitedFor);
  if (!awaited.empty()) {
    return StartProblem{"MembersNotRegistered",
                        absl::StrCat("not registered with the coordinator: ", awaited)};
  }
  if (const std::string problem = SyncProblem(draft); !problem.empty())
    return StartProblem{"SyncNotChanged", "spec.sync is not in force: " + problem};
  if (std::optional<StartProblem> left_out = LeftOutTrouble(draft)) return left_out;
  return SidecarTrouble(draft);
}

}  // namespace

void DescribePods(Draft& draft) {
  TrainingJobStatus& status = draft.status();
  const std::string& job = draft.seen().meta.key.name;
  status.observed_generation = draft.seen().meta.generation;
  status.servers = {.selector = SelectorOf(job, JobRole::kServer)};
  // After the end of the job, finished workers are not counted again.
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
  DescribeResumption(draft);
  DescribeProgress(draft);
  DescribeCheckpoint(draft);
  DescribeStall(draft);
  const bool is_ready = IsReady(draft);
  // The end of a member is reported with its cause, a change of size by Scaling, and the job's
  // success by Complete.
  const bool is_ending = DecisiveWorker(draft).has_value();
  const bool is_resizing = draft.seen().object.status.phase == Phase::kScaling ||
                           draft.status().phase == Phase::kScaling;
  draft.Set("Ready",
            is_ready,
            is_ready ? "AllReady" : "MembersMissing",
            ReadyMessage(draft),
            is_resizing || is_ending ? Telling::kQuiet : Telling::kConsequence);
  DescribeScaling(draft);
  const std::optional<StartProblem> trouble = is_ending ? std::nullopt : TroubleOf(draft);
  if (trouble) {
    draft.Set("Degraded", true, trouble->reason, trouble->message, Telling::kConsequence);
  } else {
    draft.Set("Degraded", false, "AllWell", "nothing keeps the members from running");
  }
  if (draft.status().phase == Phase::kStarting) draft.RequeueSoon();
  draft.RequeueAt(draft.now() + kAskPeriod);
}

void Summarize(Draft& draft) {
  TrainingJobStatus& status = draft.status();
  if (draft.IsFinished()) DescribeDuration(draft);
  for (const auto& [type, is_true] : kSummaries) {
    const Condition* condition = FindCondition(status.conditions, type);
    const bool holds =
        condition != nullptr && condition->status == (is_true ? kConditionTrue : kConditionFalse);
    if (!holds) continue;
    status.reason = condition->reason;
    return;
  }
  const Condition* ready = FindCondition(status.conditions, "Ready");
  status.reason = ready == nullptr ? "" : ready->reason;
}

void DescribeStopped(Draft& draft, const std::string& reason, const std::string& message) {
  DescribeLosses(draft);
  DescribeProgress(draft);
  DescribeCheckpoint(draft);
  // What stopped the job is a separate event.
  for (const char* type : {"Ready", "Scaling", "ScalingBlocked", "Degraded", "Stalled"})
    draft.Set(type, false, reason, message, Telling::kQuiet);
}

}  // namespace pushpull_operator
