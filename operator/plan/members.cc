// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/members.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "operator/plan/restarts.h"
#include "runtime/base/colocated_server.h"

namespace pushpull_operator {

using pushpull::JobRole;

namespace {

// Whether its pod is missing and may be made now.
bool IsDue(Draft& draft, const MemberId& member) {
  if (draft.Find(member) != nullptr || draft.IsTaken(member)) return false;
  const std::optional<WallTime> due = RestartDue(draft.status(), draft.NameOf(member));
  if (!due || draft.now() >= *due) return true;
  draft.LookAgain(*due);
  return false;
}

void CreateMissing(Draft& draft, JobRole role) {
  for (int i = 0; i < draft.WantedNow(role); ++i) {
    const MemberId member{.role = role, .index = i};
    if (draft.over.contains(member) || !IsDue(draft, member)) continue;
    draft.Do(CreatePod{.member = member});
  }
}

// Every coordinator has a term of its own, higher than any before. A number that no coordinator
// ever had, because the operator died right after writing it, does no harm. While one cannot be
// made, for hours maybe, the number stays: every other one would be a write, and that a reason to
// try again at once.
void PlanCoordinator(Draft& draft) {
  const MemberId coordinator{.role = JobRole::kCoordinator};
  if (!IsDue(draft, coordinator)) return;
  if (draft.seen().unused_term != draft.status().coordinator.term)
    ++draft.status().coordinator.term;
  draft.Do(CreatePod{.member = coordinator, .term = draft.status().coordinator.term});
}

void AskForSize(Draft& draft) {
  const CoordinatorWord& word = *draft.word();
  if (word.phase != CoordinatorWord::Phase::kRunning) return;
  AskSize ask;
  if (draft.spec().servers.replicas != word.servers_wanted)
    ask.servers = draft.spec().servers.replicas;
  if (draft.spec().workers.replicas != word.workers_wanted)
    ask.workers = draft.spec().workers.replicas;
  if (!ask.servers && !ask.workers) return;
  if (IsCoolingDown(draft)) {
    return draft.LookAgain(*draft.status().phase_time + draft.spec().scaling.cooldown);
  }
  draft.Do(ask);
  draft.LookAgainSoon();
}

void AskForSync(Draft& draft) {
  const CoordinatorWord& word = *draft.word();
  if (word.phase != CoordinatorWord::Phase::kRunning || word.is_sync_changing) return;
  const SyncWord wanted = WantedSync(draft);
  if (wanted.mode != pushpull::SyncMode::kAllReduce && wanted != word.sync)
    draft.Do(AskSync{.sync = wanted});
}

bool HasDrainTimedOut(const Draft& draft, const TrainingJobStatus& status) {
  return status.phase == Phase::kScaling && status.phase_time &&
         draft.now() >= *status.phase_time + draft.spec().scaling.drain_timeout;
}

// Nothing of the parameters is on it alone. One that the coordinator does not see may yet come back
// with what it holds, as long as shards are not where they shall be.
bool IsDrained(const Draft& draft, const MemberId& server) {
  const CoordinatorWord& word = *draft.word();
  const std::optional<MemberEnd>& end = draft.Find(server)->end;
  if (word.servers_wanted > server.index || word.servers.contains(server.index)) return false;
  return (end && end->code == 0) || word.shards_moving == 0;
}

// Deletes the pod of a server that holds shards if that is what onDrainTimeout says by now.
void ForceDrain(Draft& draft, const MemberId& member) {
  const MemberPod& pod = *draft.Find(member);
  const bool is_forced =
      draft.spec().scaling.on_drain_timeout == pushpull::DrainTimeoutPolicy::kForce &&
      HasDrainTimedOut(draft, draft.status());
  if (!is_forced || pod.is_deleting()) return;
  draft.Tell(Event::Kind::kWarning,
             "DrainForced",
             "Delete",
             absl::StrCat(draft.NameOf(member),
                          " still holds shards after spec.scaling.drainTimeoutSeconds and goes, "
                          "as onDrainTimeout says"));
  draft.Delete(pod);
}

void RemoveServers(Draft& draft) {
  for (const MemberId& server : Leaving(draft, JobRole::kServer)) {
    if (IsDrained(draft, server)) {
      draft.Delete(*draft.Find(server));
    } else {
      ForceDrain(draft, server);
    }
  }
}

int IndexBeside(const MemberId& worker) {
  return static_cast<int>(
      pushpull::ServerBeside(pushpull::WorkerId{static_cast<uint32_t>(worker.index)}).value());
}

// As IsDrained, of the server in the worker's pod.
bool IsDrainedBeside(const Draft& draft, const MemberId& worker) {
  if (!draft.spec().workers.colocated_server) return true;
  const CoordinatorWord& word = *draft.word();
  if (word.servers.contains(IndexBeside(worker))) return false;
  const ContainerStatus* server = ServerBeside(*draft.Find(worker)->seen);
  const bool was_let_go = server != nullptr && server->end && server->end->exit_code == 0;
  return was_let_go || word.shards_moving == 0;
}

// It leaves by itself at the end of a step; one that the coordinator does not know never will.
bool HasLeft(const Draft& draft, const MemberId& worker) {
  const auto word = draft.word()->workers.find(worker.index);
  return draft.Find(worker)->end.has_value() || word == draft.word()->workers.end() ||
         !word->second.is_alive;
}

void RemoveWorkers(Draft& draft) {
  const bool is_late = HasDrainTimedOut(draft, draft.status());
  for (const MemberId& worker : Leaving(draft, JobRole::kWorker)) {
    if (!is_late && !HasLeft(draft, worker)) continue;
    if (IsDrainedBeside(draft, worker)) {
      draft.Delete(*draft.Find(worker));
    } else {
      ForceDrain(draft, worker);
    }
  }
}

// Its server was let go when the worker was not wanted, and now it is again.
void ReplaceServerless(Draft& draft) {
  if (!draft.spec().workers.colocated_server) return;
  for (const auto& [member, pod] : draft.pods()) {
    const bool is_wanted = member.role == JobRole::kWorker && !pod.end &&
                           member.index < draft.WantedNow(JobRole::kWorker) &&
                           member.index < draft.spec().workers.replicas;
    const ContainerStatus* server = is_wanted ? ServerBeside(*pod.seen) : nullptr;
    if (server != nullptr && server->end && !draft.word()->servers.contains(IndexBeside(member)))
      draft.Delete(pod);
  }
}

// Workers find the parameters' places when they come; before the first servers there are none.
bool MayHaveWorkers(const Draft& draft, const TrainingJobStatus& status) {
  const std::set<int>& servers = draft.word()->servers;
  const auto there = static_cast<int>(
      std::distance(servers.begin(), servers.lower_bound(int{pushpull::kFirstColocatedServer})));
  return status.phase != Phase::kStarting || there >= draft.word()->servers_wanted;
}

void TellObstacles(Draft& draft) {
  std::vector<std::string> names;
  for (const ObservedPod& pod : draft.seen().pods) {
    const std::optional<MemberId> member = MemberOf(pod.meta.labels);
    if (member && draft.IsTaken(*member)) names.push_back(pod.meta.key.name);
  }
  const std::optional<Obstacle>& obstacle = draft.seen().obstacle;
  if (names.empty() && obstacle)
    return draft.Set("Reconciled", false, obstacle->reason, obstacle->message);
  if (names.empty()) return draft.Set("Reconciled", true, "Reconciled", "");
  draft.Set(
      "Reconciled",
      false,
      "NameConflict",
      absl::StrCat(
          "these pods belong to another owner, delete them or rename the job, unless a job of "
          "this name has just been deleted: then they go by themselves: ",
          absl::StrJoin(names, ", ")));
}

}  // namespace

std::vector<MemberId> Leaving(const Draft& draft, JobRole role) {
  std::vector<MemberId> leaving;
  if (draft.word() == nullptr) return leaving;
  const int wanted =
      role == JobRole::kServer ? draft.spec().servers.replicas : draft.spec().workers.replicas;
  const int limit = std::max(wanted, draft.WantedNow(role));
  for (const auto& [member, pod] : draft.pods()) {
    if (member.role == role && member.index >= limit) leaving.push_back(member);
  }
  return leaving;
}

bool IsCoolingDown(const Draft& draft) {
  const TrainingJobStatus& before = draft.seen().object.status;
  return before.phase == Phase::kRunning && before.phase_time &&
         draft.now() < *before.phase_time + draft.spec().scaling.cooldown;
}

SyncWord WantedSync(const Draft& draft) {
  const pushpull::SyncSpec& spec = draft.spec().sync;
  SyncWord wanted{.mode = spec.mode};
  if (spec.mode == pushpull::SyncMode::kBounded) wanted.staleness = spec.staleness;
  if (spec.mode == pushpull::SyncMode::kSync) {
    wanted.backup_workers = spec.backup_workers;
    wanted.is_gated = spec.gated;
  }
  return wanted;
}

void PlanMembers(Draft& draft) {
  for (const auto& [member, pod] : draft.pods()) {
    if (pod.is_deleting()) draft.Delete(pod);  // should it be stuck
  }
  TellObstacles(draft);
  PlanCoordinator(draft);
  const MemberPod* coordinator = draft.Find({.role = JobRole::kCoordinator});
  if (coordinator == nullptr || coordinator->end || coordinator->is_deleting()) return;
  if (draft.word() == nullptr) return draft.LookAgainSoon();
  if (draft.word()->phase == CoordinatorWord::Phase::kSucceeded) return draft.LookAgainSoon();
  AskForSize(draft);
  AskForSync(draft);
  CreateMissing(draft, JobRole::kServer);
  RemoveServers(draft);
  if (MayHaveWorkers(draft, draft.status())) {
    CreateMissing(draft, JobRole::kWorker);
  } else {
    draft.LookAgainSoon();
  }
  RemoveWorkers(draft);
  ReplaceServerless(draft);
}

}  // namespace pushpull_operator
