// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/operator/plan/world.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include <gtest/gtest.h>

#include "operator/plan/member_end.h"
#include "runtime/base/colocated_server.h"
#include "runtime/job/enum_names.h"

namespace pushpull_operator {

using pushpull::JobRole;

namespace {

constexpr char kJob[] = "mnist";

std::string MemberName(const std::string& pod) {
  return std::string(absl::StripPrefix(pod, absl::StrCat(kJob, "-")));
}

ContainerStatus& Main(ObservedPod& pod) {
  if (pod.pod.containers.empty()) {
    const std::optional<MemberId> member = MemberOf(pod.meta.labels);
    pod.pod.containers.push_back({.name = std::string(ComponentOf(member->role)), .image = "i"});
  }
  return pod.pod.containers.front();
}

int IndexBeside(int worker) {
  const pushpull::WorkerId id{static_cast<uint32_t>(worker)};
  return static_cast<int>(pushpull::ServerBeside(id).value());
}

// Nobody is told something without a reason, or a reason without words.
void ExpectFullWords(const JobPlan& plan) {
  for (const Condition& condition : plan.status.conditions) {
    EXPECT_NE(condition.reason, "") << condition.type;
    EXPECT_NE(condition.message, "") << condition.type << " " << condition.reason;
  }
  for (const Event& event : plan.events) {
    EXPECT_NE(event.reason, "") << event.note;
    EXPECT_NE(event.action, "") << event.reason;
    EXPECT_NE(event.note, "") << event.reason;
  }
}

}  // namespace

World::World(int servers, int workers) {
  seen.now = WallTime(std::chrono::seconds(1'769'860'800));
  seen.meta = {.key = {.object_namespace = "n", .name = kJob},
               .uid = "job-1",
               .resource_version = "1",
               .generation = 1};
  seen.object.job.metadata.name = kJob;
  spec().servers.replicas = servers;
  spec().workers.replicas = workers;
}

const Condition* World::Find(const std::string& type) const {
  return FindCondition(status().conditions, type);
}

std::string World::Say(const std::string& type) const {
  const Condition* condition = Find(type);
  return condition == nullptr ? "" : condition->status + " " + condition->reason;
}

JobPlan World::Step(std::optional<int> crash_after) {
  seen.pods.clear();
  for (const auto& [name, pod] : late_ ? *late_ : pods) seen.pods.push_back(pod);
  late_.reset();
  JobPlan plan = Plan(seen);
  ExpectFullWords(plan);
  if (crash_after == 0) return plan;
  seen.object.status = plan.status;
  for (const Event& event : plan.events) events.push_back(event);
  int num_done = 0;
  for (const Action& action : plan.actions) {
    if (crash_after && ++num_done >= *crash_after) return plan;
    Do(action);
  }
  return plan;
}

bool World::Settle() {
  for (int i = 0; i < 50; ++i) {
    const TrainingJobStatus before = status();
    if (Step().actions.empty() && status() == before) return true;
  }
  return false;
}

void World::Do(const Action& action) {
  if (const auto* create = std::get_if<CreatePod>(&action)) {
    const std::string name = PodName(kJob, create->member);
    done.push_back("create " + MemberName(name));
    if (pods.contains(name)) return;  // the API server refuses
    ObservedPod pod;
    pod.meta = {.key = {.object_namespace = "n", .name = name},
                .uid = absl::StrCat("pod-", ++num_pods_),
                .labels = MemberLabels(kJob, create->member),
                .controller_uid = seen.meta.uid};
    pod.meta.labels[kTermLabel] = absl::StrCat(create->term);
    pod.pod.phase = PodPhase::kPending;
    pod.pod.creation_time = seen.now;
    pods[name] = std::move(pod);
  } else if (const auto* remove = std::get_if<DeletePod>(&action)) {
    const bool is_at_once = remove->grace == DeletePod::Grace::kNone;
    done.push_back("delete " + MemberName(remove->name) + (is_at_once ? " at once" : ""));
    const auto found = pods.find(remove->name);
    if (found == pods.end() || found->second.meta.uid != remove->uid) return;
    const bool never_ran = found->second.pod.phase == PodPhase::kPending;
    if (is_at_once || never_ran) return Vanish(MemberName(remove->name));
    BeginDeletion(MemberName(remove->name));
  } else if (const auto* ask = std::get_if<RequestSize>(&action)) {
    done.push_back(
        absl::StrCat("ask",
                     ask->servers ? absl::StrCat(" servers=", *ask->servers) : "",
                     ask->workers ? absl::StrCat(" workers=", *ask->workers) : "",
                     ask->global_batch ? absl::StrCat(" batch=", *ask->global_batch) : ""));
    for (const MemberRack& known : ask->racks) {
      absl::StrAppend(
          &done.back(), " ", MemberName(PodName(kJob, known.member)), " in ", known.rack);
    }
    for (const LeftOutWorker& worker : ask->left_out) {
      const bool is_done = worker.why.empty();
      absl::StrAppend(&done.back(), is_done ? " done worker-" : " without worker-", worker.index);
      WorkerReport& known = seen.coordinator->workers[worker.index];
      (is_done ? known.has_left : known.is_left_out) = true;
    }
    if (ask->racks.empty() && ask->left_out.empty()) asked_ = *ask;
  } else if (const auto* sync = std::get_if<RequestSync>(&action)) {
    done.push_back(absl::StrCat("sync ",
                                pushpull::NameOf(sync->sync.mode),
                                " ",
                                sync->sync.staleness,
                                " ",
                                sync->sync.backup_workers));
    seen.coordinator->is_sync_changing = true;
  } else if (const auto* heal = std::get_if<HealLabels>(&action)) {
    const std::string name = PodName(kJob, heal->member);
    done.push_back("heal labels of " + MemberName(name));
    if (pods.at(name).meta.uid == heal->uid)
      pods.at(name).meta.labels = MemberLabels(kJob, heal->member);
  } else if (std::get_if<RequestSave>(&action) != nullptr) {
    done.emplace_back("save");
    seen.save = ++seen.coordinator->saves_requested;
  } else {
    done.emplace_back("delete job");
  }
}

void World::RunPods() {
  for (auto& [name, pod] : pods) {
    if (pod.pod.phase != PodPhase::kPending) continue;
    pod.pod.phase = PodPhase::kRunning;
    pod.pod.is_ready = true;
    Main(pod).waiting_reason.clear();
    Main(pod).running_since = seen.now;
    const JobRole role = MemberOf(pod.meta.labels)->role;
    if (role == JobRole::kWorker && spec().workers.colocated_server)
      pod.pod.containers.push_back({.name = "server", .image = "s", .running_since = seen.now});
    if (role != JobRole::kCoordinator) continue;
    seen.coordinator = CoordinatorReport{.phase = pushpull::JobPhase::kStarting,
                                         .desired_servers = spec().servers.replicas,
                                         .desired_workers = spec().workers.replicas,
                                         .global_batch = spec().workers.global_batch.value_or(0),
                                         .epoch = 1};
  }
  MeetMembers();
}

void World::MeetMembers() {
  if (!seen.coordinator) return;
  for (const auto& [name, pod] : pods) {
    if (pod.pod.phase != PodPhase::kRunning) continue;
    const MemberId member = *MemberOf(pod.meta.labels);
    if (member.role == JobRole::kServer) seen.coordinator->servers.insert(member.index);
    if (member.role != JobRole::kWorker) continue;
    seen.coordinator->workers[member.index] = {.is_alive = true, .has_stepped = true};
    seen.coordinator->phase = pushpull::JobPhase::kRunning;
    seen.coordinator->has_stepped = true;
    const ContainerStatus* server = ColocatedServerOf(pod);
    if (server != nullptr && !server->end)
      seen.coordinator->servers.insert(IndexBeside(member.index));
  }
}

void World::AgreeToSize() {
  if (asked_.servers) seen.coordinator->desired_servers = *asked_.servers;
  if (asked_.workers) seen.coordinator->desired_workers = *asked_.workers;
  if (asked_.global_batch) seen.coordinator->global_batch = *asked_.global_batch;
  asked_ = {};
}

bool World::Start() {
  for (int i = 0; i < 4; ++i) {
    if (!Settle()) return false;
    RunPods();
  }
  return Settle() && status().phase == Phase::kRunning;
}

ObservedPod& World::pod(const std::string& member) {
  return pods.at(absl::StrCat(kJob, "-", member));
}

void World::Exit(const std::string& member, int code, const std::string& reason) {
  ObservedPod& ended = pod(member);
  ContainerStatus& main = Main(ended);
  main.end = ContainerEnd{
      .exit_code = code, .reason = reason, .started = main.running_since, .finished = seen.now};
  main.running_since.reset();
  ended.pod.is_ready = false;
  const ContainerStatus* server = main.name == "worker" ? ColocatedServerOf(ended) : nullptr;
  const bool is_repaired = server == nullptr || server->end.has_value();
  if (is_repaired) ended.pod.phase = code == 0 ? PodPhase::kSucceeded : PodPhase::kFailed;
  if (!seen.coordinator) return;
  const MemberId id = *MemberOf(ended.meta.labels);
  if (id.role == JobRole::kServer) seen.coordinator->servers.erase(id.index);
  if (id.role == JobRole::kWorker) {
    seen.coordinator->workers[id.index].is_alive = false;
    if (code == 0) seen.coordinator->workers[id.index].has_left = true;
  }
  if (id.role == JobRole::kCoordinator) seen.coordinator.reset();
}

void World::ExitBeside(const std::string& worker, int code) {
  ObservedPod& with = pod(worker);
  ContainerStatus& server = with.pod.containers.back();
  server.end = ContainerEnd{.exit_code = code, .finished = seen.now};
  server.running_since.reset();
  with.pod.is_ready = false;
  seen.coordinator->servers.erase(IndexBeside(MemberOf(with.meta.labels)->index));
}

void World::BeginDeletion(const std::string& member) {
  ObservedPod& going = pod(member);
  going.meta.is_deleting = true;
  going.pod.deletion_time = seen.now + std::chrono::seconds(30);
}

void World::Vanish(const std::string& member) {
  const MemberId id = *MemberOf(pod(member).meta.labels);
  pods.erase(absl::StrCat(kJob, "-", member));
  if (!seen.coordinator) return;
  if (id.role == JobRole::kServer) seen.coordinator->servers.erase(id.index);
  if (id.role == JobRole::kWorker) {
    seen.coordinator->servers.erase(IndexBeside(id.index));
    if (seen.coordinator->workers.contains(id.index))
      seen.coordinator->workers[id.index].is_alive = false;
  }
  if (id.role == JobRole::kCoordinator) seen.coordinator.reset();
}

void World::VanishDeleted() {
  std::vector<std::string> going;
  for (const auto& [name, pod] : pods) {
    if (pod.meta.is_deleting) going.push_back(MemberName(name));
  }
  for (const std::string& member : going) Vanish(member);
}

}  // namespace pushpull_operator
