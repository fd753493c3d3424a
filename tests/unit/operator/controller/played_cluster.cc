// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/operator/controller/played_cluster.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

#include "operator/children/job_objects.h"
#include "operator/children/tls_secret.h"

namespace pushpull_operator {

using nlohmann::json;
using pushpull::Deadline;
using pushpull::JobRole;
using std::chrono::seconds;

namespace {

const ObjectKey kJob{.object_namespace = "n", .name = "mnist"};
// The most that any test asks for.
constexpr int kServersMax = 4;

ObjectKey PodKey(const std::string& member) {
  return {.object_namespace = "n", .name = absl::StrCat("mnist-", member)};
}

std::vector<std::string> AllMembers() {
  std::vector<std::string> members{"coordinator", "worker-0"};
  for (int i = 0; i < kServersMax; ++i) members.push_back(absl::StrCat("server-", i));
  return members;
}

std::string PhaseOf(const json& pod) {
  return pod.value(json::json_pointer("/status/phase"), std::string());
}

template <typename T>
absl::Status ListInto(Store<T>& store,
                      KubeClient& client,
                      const ResourceType& type,
                      const Selection& selection,
                      Deadline by) {
  absl::Status listed = client.List(type, selection, store, by).status();
  if (listed.ok()) store.EndListing();
  return listed;
}

Selection Ours() {
  return {.label_selector = absl::StrCat(kManagedByLabel, "=", kManagedBy)};
}

}  // namespace

absl::StatusOr<CoordinatorReport> PlayedCoordinator::GetStatus(const CoordinatorEndpoint& asked_at,
                                                               Deadline) {
  endpoint = asked_at;
  ++num_asked;
  const std::string certificate = endpoint.tls == nullptr ? "" : endpoint.tls->certificate;
  certificates.insert(certificate);
  if (!trouble.ok()) return trouble;
  if (!accepted.empty() && certificate != accepted)
    return absl::UnavailableError("the certificates of the two ends do not fit");
  return report;
}

absl::Status PlayedCoordinator::Resize(const CoordinatorEndpoint&,
                                       const RequestSize& size,
                                       Deadline) {
  if (on_resize) return on_resize();
  if (size.servers) report.desired_servers = *size.servers;
  if (size.workers) report.desired_workers = *size.workers;
  if (size.global_batch) report.global_batch = *size.global_batch;
  for (const MemberRack& known : size.racks) {
    auto& racks = known.member.role == JobRole::kServer ? report.server_racks : report.worker_racks;
    racks[known.member.index] = known.rack;
  }
  return absl::OkStatus();
}

absl::Status PlayedCoordinator::SetSync(const CoordinatorEndpoint&,
                                        const RequestSync& sync,
                                        Deadline) {
  if (!sync_answer.ok()) return sync_answer;
  report.sync = sync.sync;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> PlayedCoordinator::Save(const CoordinatorEndpoint&, Deadline) {
  report.checkpoint_step += 10;
  report.saves_finished = ++report.saves_requested;
  report.saves_succeeded = report.saves_finished;
  return report.saves_finished;
}

PlayedOperator::PlayedOperator(PlayedCluster& cluster)
    : credentials_(*Credentials::Create(cluster.server.access(), time_)),
      client_(*credentials_, time_, {.rate_limit = {.qps = 1e6, .burst = 1000}}),
      jobs_({.decode = DecodeTrainingJobObject}),
      pods_({.decode = DecodePod, .index = JobOf}),
      workers_({.decode = DecodeTrainingJobWorkers}),
      runtimes_({.decode = DecodeTrainingRuntimeObject}),
      reconciler_(client_,
                  time_,
                  {.jobs = jobs_,
                   .pods = pods_,
                   .children = children_,
                   .workers = workers_,
                   .runtimes = runtimes_},
                  cluster.coordinator,
                  {.pods = {.runtime_image = "pushpull:1"},
                   .instance = "operator-1",
                   .now = [&cluster] { return cluster.now; }}) {}

absl::Status PlayedOperator::SyncPods() {
  const Deadline by(time_.Now() + seconds(30));
  absl::Status looked = ListInto(jobs_, client_, TrainingJobType(), {}, by);
  looked.Update(ListInto(pods_, client_, PodType(), Ours(), by));
  looked.Update(ListInto(workers_, client_, TrainingJobWorkersType(), {}, by));
  looked.Update(ListInto(runtimes_, client_, TrainingRuntimeType(), {}, by));
  return looked;
}

absl::Status PlayedOperator::SyncCaches() {
  const Deadline by(time_.Now() + seconds(30));
  absl::Status looked = SyncPods();
  Selection with_metadata = Ours();
  with_metadata.has_only_metadata = true;
  for (const ResourceType& type : WatchedChildren())
    looked.Update(ListInto(children_.StoreOf(type), client_, type, with_metadata, by));
  return looked;
}

bool PlayedOperator::PollSecrets() {
  if (!SyncCaches().ok()) return false;
  const JobStore::Pointer job = jobs_.Find(kJob);
  secret_poll_.LookOnce(Cancellation());
  return job != nullptr && HasOwnSecret(*job);
}

absl::Status PlayedOperator::Step() {
  const absl::Status looked = SyncCaches();
  return looked.ok() ? ReconcileOnly() : looked;
}

absl::Status PlayedOperator::ReconcileOnly() {
  const auto result = reconciler_.Reconcile(kJob);
  if (result.ok()) requeue = *result;
  return result.status();
}

PlayedCluster::PlayedCluster(const std::string& text) {
  json spec = json::parse(text);
  if (!spec.contains("runtimeRef")) {
    for (const char* role : {"servers", "workers"}) spec[role].emplace("replicas", 1);
  }
  server.Put(TrainingJobType(),
             kJob,
             {{"apiVersion", "pushpull.dev/v1alpha1"},
              {"kind", "TrainingJob"},
              {"metadata", {{"generation", 1}}},
              {"spec", std::move(spec)}});
  server.InjectFaults([this](const FakeRequest& request) { return OnRequest(request); });
  op = std::make_unique<PlayedOperator>(*this);
}

void PlayedCluster::PutRuntime(const std::string& name, int generation, const std::string& spec) {
  server.Put(TrainingRuntimeType(),
             {.object_namespace = "n", .name = name},
             {{"metadata", {{"generation", generation}}}, {"spec", json::parse(spec)}});
}

json PlayedCluster::Job() const {
  return server.Find(TrainingJobType(), kJob);
}

json PlayedCluster::Secret() const {
  return server.Find(SecretType(), {.object_namespace = "n", .name = "mnist-tls"});
}

TrainingJobStatus PlayedCluster::Status() const {
  return DecodeStatus(Job());
}

void PlayedCluster::Change(const std::function<void(json&)>& change) {
  json job = Job();
  change(job["spec"]);
  job["metadata"]["generation"] = job["metadata"]["generation"].get<int>() + 1;
  server.Put(TrainingJobType(), kJob, std::move(job));
}

bool PlayedCluster::Has(const std::string& member) const {
  return !server.Find(PodType(), PodKey(member)).is_null();
}

void PlayedCluster::ExitPod(const std::string& member, int code) {
  const std::string container = member.substr(0, member.find('-'));
  json pod = server.Find(PodType(), PodKey(member));
  pod["status"] = {
      {"phase", code == 0 ? "Succeeded" : "Failed"},
      {"containerStatuses",
       json::array(
           {{{"name", container},
             {"state", {{"terminated", {{"exitCode", code}, {"finishedAt", ToText(now)}}}}}}})}};
  server.Put(PodType(), PodKey(member), std::move(pod));
}

void PlayedCluster::Play() {
  CoordinatorReport& report = coordinator.report;
  report.servers.clear();
  for (const std::string& member : AllMembers()) {
    json pod = server.Find(PodType(), PodKey(member));
    if (pod.is_null()) continue;
    pods[member].insert(pod["metadata"]["uid"].get<std::string>());
    const std::optional<MemberId> id = MemberOfPod("mnist", PodKey(member).name);
    if (PhaseOf(pod).empty()) {
      pod["status"] = {{"phase", "Running"},
                       {"podIP", "10.0.0.7"},
                       {"conditions", json::array({{{"type", "Ready"}, {"status", "True"}}})}};
      server.Put(PodType(), PodKey(member), pod);
      if (id->role == JobRole::kCoordinator) {
        const json spec = Job()["spec"];
        const bool is_first = pod["metadata"]["labels"][kTermLabel] == "1";
        report = {
            .job = "mnist",
            .phase = is_first ? pushpull::JobPhase::kStarting : pushpull::JobPhase::kRecovering,
            .desired_servers = spec["servers"]["replicas"].get<int>(),
            .desired_workers = 1,
            .epoch = 1};
      }
    }
    if (PhaseOf(pod) != "Running") continue;
    if (id->role != JobRole::kCoordinator && report.phase == pushpull::JobPhase::kRecovering)
      report.phase = pushpull::JobPhase::kStarting;
    if (id->role == JobRole::kServer && id->index < report.desired_servers)
      report.servers.insert(id->index);
    if (id->role == JobRole::kServer && id->index >= report.desired_servers) ExitPod(member, 0);
    if (id->role != JobRole::kWorker) continue;
    report.workers[id->index] = {.is_alive = true};
    report.phase = pushpull::JobPhase::kRunning;
  }
}

bool PlayedCluster::Until(const std::function<bool()>& is_reached) {
  for (int i = 0; i < 60; ++i) {
    const absl::Status stepped = op->Step();
    if (is_dead_) {
      ++num_kills_;
      op = std::make_unique<PlayedOperator>(*this);
      is_dead_ = false;
    } else if (!stepped.ok()) {
      ADD_FAILURE() << stepped;
      return false;
    }
    if (is_reached()) return true;
    Play();
    now += seconds(1);
  }
  return false;
}

void PlayedCluster::KillAtWrite(int n, Fault::Kind side) {
  side_ = side;
  kill_at_ = n;
}

Fault PlayedCluster::OnRequest(const FakeRequest& request) {
  if (is_dead_) return {.kind = Fault::Kind::kDropBefore};
  if (request.method == "GET") return {};
  if (++num_writes_ != kill_at_) return {};
  is_dead_ = true;  // from now on nothing arrives, whatever it tries
  return {.kind = side_};
}

}  // namespace pushpull_operator
