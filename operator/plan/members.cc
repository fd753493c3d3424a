// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "operator/plan/parts.h"
#include "runtime/base/colocated_server.h"

namespace pushpull_operator {

using pushpull::JobRole;

namespace {

// Whether its pod is missing and may be created now.
bool IsDue(Draft& draft, const MemberId& member) {
  if (draft.Find(member) != nullptr || draft.IsTaken(member)) return false;
  const std::optional<WallTime> due = RestartDue(draft.status(), draft.NameOf(member));
  if (!due || draft.now() >= *due) return true;
  draft.RequeueAt(*due);
  return false;
}

void CreateMissing(Draft& draft, JobRole role, int count) {
  if (role == JobRole::kWorker && DecisiveWorker(draft)) return;
  for (int i = 0; i < count; ++i) {
    const MemberId member{.role = role, .index = i};
    if (draft.finished_members().contains(member) || !IsDue(draft, member)) continue;
    draft.Do(CreatePod{.member = member});
  }
}

// A coordinator that recovers a job before its first step waits for each of its servers, so one
// that was lost along with the previous coordinator is created again. After the first step, the
// coordinator itself says who is needed.
void CreateAwaitedServers(Draft& draft) {
  const std::optional<CoordinatorReport>& said = draft.seen().coordinator;
  const TrainingJobStatus& status = draft.status();
  const bool has_begun =
      status.phase != Phase::kStarting && status.progress && status.progress->step > 0;
  if (said && !has_begun) CreateMissing(draft, JobRole::kServer, said->desired_servers);
}

// Every coordinator has its own term, higher than any before. A term that no coordinator ever had,
// because the operator died right after writing it, does no harm. While a coordinator cannot be
// created, possibly for hours, the term stays: each new one would be a write, which is a reason to
// try again at once.
void PlanCoordinator(Draft& draft) {
  const MemberId coordinator{.role = JobRole::kCoordinator};
  if (!IsDue(draft, coordinator)) return;
  if (draft.seen().unused_term != draft.status().coordinator.term)
    ++draft.status().coordinator.term;
  draft.Do(CreatePod{.member = coordinator, .term = draft.status().coordinator.term});
}

void PlanSize(Draft& draft) {
  const CoordinatorReport& report = *draft.report();
  if (report.phase != pushpull::JobPhase::kRunning) return;
  RequestSize ask;
  if (draft.spec().servers.replicas != report.desired_servers)
    ask.servers = draft.spec().servers.replicas;
  if (draft.spec().workers.replicas != report.desired_workers)
    ask.workers = draft.spec().workers.replicas;
  if (!ask.servers && !ask.workers) return;
  if (IsCoolingDown(draft)) {
    return draft.RequeueAt(*draft.status().phase_time + draft.spec().scaling.cooldown);
  }
  draft.Do(ask);
  draft.RequeueSoon();
}

// Nothing moves for another batch, so it need not wait. A separate request, so that a refusal
// affects nothing else.
void PlanBatch(Draft& draft) {
  const CoordinatorReport& report = *draft.report();
  const std::optional<int>& batch = draft.spec().workers.global_batch;
  if (report.phase != pushpull::JobPhase::kRunning || !report.divides_samples) return;
  if (!batch || *batch == report.global_batch) return;
  draft.Do(RequestSize{.global_batch = batch});
  draft.RequeueSoon();
}

void PlanSync(Draft& draft) {
  const CoordinatorReport& report = *draft.report();
  if (report.phase != pushpull::JobPhase::kRunning || report.is_sync_changing) return;
  const SyncSettings wanted = DesiredSync(draft);
  if (wanted != report.sync) draft.Do(RequestSync{.sync = wanted});
}

int IndexBeside(const MemberId& worker) {
  return static_cast<int>(
      pushpull::ServerBeside(pushpull::WorkerId{static_cast<uint32_t>(worker.index)}).value());
}

// A pod gets its node only after it is created, so members cannot learn their rack when they start:
// the coordinator receives it once they are there, and again if it forgot it in a restart.
void PlanRacks(Draft& draft) {
  const CoordinatorReport& report = *draft.report();
  using pushpull::JobPhase;
  if (report.phase != JobPhase::kStarting && report.phase != JobPhase::kRunning) return;
  RequestSize ask;
  const auto compare = [&ask](const std::map<int, std::string>& known,
                              const MemberId& member,
                              const std::string& rack) {
    const auto said = known.find(member.index);
    if (said != known.end() && said->second != rack)
      ask.racks.push_back({.member = member, .rack = rack});
  };
  for (const auto& [member, pod] : draft.pods()) {
    const auto rack = draft.seen().racks.find(pod.seen->pod.node);
    if (rack == draft.seen().racks.end() || member.role == JobRole::kCoordinator) continue;
    const bool is_server = member.role == JobRole::kServer;
    compare(is_server ? report.server_racks : report.worker_racks, member, rack->second);
    if (is_server || !draft.spec().workers.colocated_server) continue;
    compare(report.server_racks,
            {.role = JobRole::kServer, .index = IndexBeside(member)},
            rack->second);
  }
  if (ask.racks.empty()) return;
  draft.Do(ask);
  draft.RequeueSoon();
}

// The coordinator receives it until its report shows that it counts the worker as done. One that
// has replaced another does not know which workers are done, and saves no last checkpoint until
// then.
void PlanLeftOut(Draft& draft) {
  const auto& workers = draft.report()->workers;
  RequestSize ask;
  const bool is_running = draft.report()->phase == pushpull::JobPhase::kRunning;
  for (const auto& [member, why] : draft.finished_members()) {
    if (member.role != JobRole::kWorker || (why.empty() && !is_running)) continue;
    const auto known = workers.find(member.index);
    const bool is_known = known != workers.end() &&
                          (why.empty() ? known->second.has_left : known->second.is_left_out);
    if (!is_known) ask.left_out.push_back({.index = member.index, .why = why});
  }
  if (ask.left_out.empty()) return;
  draft.Do(ask);
  draft.RequeueSoon();
}

bool HasDrainTimedOut(const Draft& draft, const TrainingJobStatus& status) {
  return status.phase == Phase::kScaling && status.phase_time &&
         draft.now() >= *status.phase_time + draft.spec().scaling.drain_timeout;
}

// Whether it holds no parameters that no other server has. While shards are moving, a server that
// the coordinator does not see may still come back with what it holds.
bool IsDrained(const Draft& draft, const MemberId& server) {
  const CoordinatorReport& report = *draft.report();
  const std::optional<MemberEnd>& end = draft.Find(server)->end;
  if (report.desired_servers > server.index || report.servers.contains(server.index)) return false;
  return (end && end->code == 0) || report.shards_moving == 0;
}

// Deletes the pod of a server that holds shards if onDrainTimeout demands that by now.
void ForceDrain(Draft& draft, const MemberId& member) {
  const MemberPod& pod = *draft.Find(member);
  const bool is_forced =
      draft.spec().scaling.on_drain_timeout == pushpull::DrainTimeoutPolicy::kForce &&
      HasDrainTimedOut(draft, draft.status());
  if (!is_forced || pod.is_deleting()) return;
  draft.AddEvent(Event::Kind::kWarning,
                 "DrainForced",
                 "Delete",
                 absl::StrCat(draft.NameOf(member),
                              " still holds shards after spec.scaling.drainTimeoutSeconds; "
                              "deleted because onDrainTimeout is Force"));
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

// As IsDrained, for the server in the worker's pod.
bool IsColocatedServerDrained(const Draft& draft, const MemberId& worker) {
  if (!draft.spec().workers.colocated_server) return true;
  const CoordinatorReport& report = *draft.report();
  if (report.servers.contains(IndexBeside(worker))) return false;
  const ContainerStatus* server = ColocatedServerOf(*draft.Find(worker)->seen);
  const bool was_let_go = server != nullptr && server->end && server->end->exit_code == 0;
  return was_let_go || report.shards_moving == 0;
}

// A worker leaves by itself at the end of a step, unless the coordinator does not know it.
bool HasLeft(const Draft& draft, const MemberId& worker) {
  const auto report = draft.report()->workers.find(worker.index);
  return draft.Find(worker)->end.has_value() || report == draft.report()->workers.end() ||
         !report->second.is_alive;
}

void RemoveWorkers(Draft& draft) {
  const bool is_late = HasDrainTimedOut(draft, draft.status());
  for (const MemberId& worker : Leaving(draft, JobRole::kWorker)) {
    if (!is_late && !HasLeft(draft, worker)) continue;
    if (IsColocatedServerDrained(draft, worker)) {
      draft.Delete(*draft.Find(worker));
    } else {
      ForceDrain(draft, worker);
    }
  }
}

// For a worker that is desired again after its server was released together with it.
void ReplacePodsWithoutServer(Draft& draft) {
  if (!draft.spec().workers.colocated_server) return;
  for (const auto& [member, pod] : draft.pods()) {
    const bool is_wanted = member.role == JobRole::kWorker && !pod.end &&
                           member.index < draft.DesiredNow(JobRole::kWorker) &&
                           member.index < draft.spec().workers.replicas;
    const ContainerStatus* server = is_wanted ? ColocatedServerOf(*pod.seen) : nullptr;
    if (server != nullptr && server->end && !draft.report()->servers.contains(IndexBeside(member)))
      draft.Delete(pod);
  }
}

// Workers look up the placement of the shards when they start, which requires the first servers.
bool MayHaveWorkers(const Draft& draft, const TrainingJobStatus& status) {
  const std::set<int>& servers = draft.report()->servers;
  const auto there = static_cast<int>(
      std::distance(servers.begin(), servers.lower_bound(int{pushpull::kFirstColocatedServer})));
  return status.phase != Phase::kStarting || there >= draft.report()->desired_servers;
}

void DescribeObstacles(Draft& draft) {
  std::vector<std::string> names;
  for (const ObservedPod& pod : draft.seen().pods) {
    const std::optional<MemberId> member =
        MemberOfPod(draft.seen().meta.key.name, pod.meta.key.name);
    if (member && draft.IsTaken(*member)) names.push_back(pod.meta.key.name);
  }
  const std::optional<Obstacle>& obstacle = draft.seen().obstacle;
  if (names.empty() && obstacle)
    return draft.Set("Reconciled", false, obstacle->reason, obstacle->message);
  if (names.empty()) return draft.Set("Reconciled", true, "Reconciled", kReconciled);
  draft.Set(
      "Reconciled",
      false,
      "NameConflict",
      absl::StrCat(
          "these pods belong to another owner; delete them or rename the job, unless a job of "
          "this name has just been deleted, whose pods are being removed: ",
          absl::StrJoin(names, ", ")));
}

}  // namespace

std::vector<MemberId> Leaving(const Draft& draft, JobRole role) {
  std::vector<MemberId> leaving;
  if (draft.report() == nullptr) return leaving;
  const int wanted =
      role == JobRole::kServer ? draft.spec().servers.replicas : draft.spec().workers.replicas;
  const int limit = std::max(wanted, draft.DesiredNow(role));
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

SyncSettings DesiredSync(const Draft& draft) {
  const pushpull::SyncSpec& spec = draft.spec().sync;
  SyncSettings wanted{.mode = spec.mode};
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
    const ObjectMeta& meta = pod.seen->meta;
    if (!HasLabels(meta, MemberLabels(draft.seen().meta.key.name, member)))
      draft.Do(HealLabels{.member = member, .uid = meta.uid});
  }
  DescribeObstacles(draft);
  PlanCoordinator(draft);
  const MemberPod* coordinator = draft.Find({.role = JobRole::kCoordinator});
  if (coordinator == nullptr || coordinator->end || coordinator->is_deleting()) return;
  if (draft.report() == nullptr) {
    CreateAwaitedServers(draft);
    return draft.RequeueSoon();
  }
  if (draft.report()->phase == pushpull::JobPhase::kSucceeded) return draft.RequeueSoon();
  PlanSize(draft);
  PlanBatch(draft);
  PlanSync(draft);
  PlanRacks(draft);
  PlanLeftOut(draft);
  CreateMissing(draft, JobRole::kServer, draft.DesiredNow(JobRole::kServer));
  RemoveServers(draft);
  if (MayHaveWorkers(draft, draft.status())) {
    CreateMissing(draft, JobRole::kWorker, draft.DesiredNow(JobRole::kWorker));
  } else {
    draft.RequeueSoon();
  }
  RemoveWorkers(draft);
  ReplacePodsWithoutServer(draft);
}

}  // namespace pushpull_operator
