// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/job_controller.h"

#include <pthread.h>

#include <bit>
#include <cstdint>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull_operator {

using pushpull::Deadline;

namespace {

// How often a waiting worker checks whether to stop.
constexpr std::chrono::milliseconds kSyncPoll{100};
constexpr std::chrono::seconds kQueuePoll{60};
// Nothing reports the end of an outage of the API server: no job waits longer than this.
constexpr BackoffTimes kBackoff{.longest = std::chrono::minutes(1)};

ObjectKey KeyOf(const std::string& job) {
  const size_t slash = job.find('/');
  return {.object_namespace = job.substr(0, slash), .name = job.substr(slash + 1)};
}

// Used by the calling thread since it started.
pushpull::Duration ThreadCpuTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

JobController::JobController(KubeClient& client,
                             PausingTime& time,
                             JobCoordinator& coordinators,
                             OperatorMetrics& metrics,
                             ControllerOptions options,
                             pushpull::Log log)
    : client_(client),
      time_(time),
      coordinators_(coordinators),
      metrics_(metrics),
      options_(std::move(options)),
      log_(std::move(log)),
      queue_(time, kBackoff) {
  if (options_.namespaces.empty()) scopes_.emplace("", MakeScope(""));
  for (const std::string& name : options_.namespaces) scopes_.emplace(name, MakeScope(name));
}

JobController::~JobController() {
  Stop();
  for (std::thread& worker : workers_) worker.join();
}

JobController::Scope JobController::MakeScope(const std::string& object_namespace) {
  Scope scope;
  SecretPace pace{.pause = options_.secret_pause};
  if (!options_.namespaces.empty()) pace.pause *= static_cast<int64_t>(options_.namespaces.size());
  scope.watch = std::make_unique<JobWatch>(
      client_,
      time_,
      object_namespace,
      [this](const std::string& job) { queue_.Add(job); },
      pace,
      log_);
  const JobCaches caches{.jobs = scope.watch->jobs(),
                         .pods = scope.watch->pods(),
                         .children = scope.watch->children(),
                         .workers = scope.watch->workers(),
                         .runtimes = scope.watch->runtimes()};
  scope.reconciler =
      std::make_unique<JobReconciler>(client_, time_, caches, coordinators_, options_.reconciler);
  return scope;
}

void JobController::Start() {
  for (auto& [name, scope] : scopes_) scope.watch->Start();
  for (int i = 0; i < options_.workers; ++i) {
    workers_.emplace_back([this, i] {
      pthread_setname_np(pthread_self(), absl::StrCat("op-worker-", i).c_str());
      Work();
    });
  }
}

void JobController::Stop() {
  stop_.Cancel();
  for (auto& [name, scope] : scopes_) scope.watch->Stop();
  queue_.ShutDown();
}

absl::Status JobController::AwaitIdle(Deadline deadline) {
  return queue_.AwaitDrained(deadline);
}

absl::Status JobController::Ready() const {
  for (const auto& [name, scope] : scopes_) {
    if (scope.watch->AwaitSynced(Deadline::After(std::chrono::seconds(0))).ok()) continue;
    return absl::UnavailableError(
        absl::StrCat("the jobs and pods of ",
                     name.empty() ? "the cluster" : absl::StrCat("namespace ", name),
                     " are not listed yet"));
  }
  return absl::OkStatus();
}

bool JobController::AwaitSynced() const {
  for (const auto& [name, scope] : scopes_) {
    while (!scope.watch->AwaitSynced(Deadline::After(kSyncPoll)).ok()) {
      if (stop_.is_cancelled()) return false;
    }
  }
  return true;
}

void JobController::Work() {
  // A worker that is stopped before that still empties the queue.
  const bool has_synced = AwaitSynced();
  for (;;) {
    const absl::StatusOr<std::string> job = queue_.Take(Deadline::After(kQueuePoll));
    if (absl::IsCancelled(job.status())) return;
    if (!job.ok()) continue;
    if (has_synced && !stop_.is_cancelled()) ReconcileJob(*job);
    queue_.Done(*job);
  }
}

void JobController::ReconcileJob(const std::string& job) {
  const ObjectKey key = KeyOf(job);
  const auto scope = scopes_.find(options_.namespaces.empty() ? "" : key.object_namespace);
  const pushpull::SteadyTime begin = time_.Now();
  const pushpull::Duration computed_before = ThreadCpuTime();
  const auto result = scope->second.reconciler->Reconcile(key);
  metrics_.ObserveReconcile(time_.Now() - begin, ThreadCpuTime() - computed_before);
  const Requeue next = DecideRequeue(result);
  int failures = 0;
  if (next.when == Requeue::When::kAfterFailure) {
    failures = queue_.AddRateLimited(job);
  } else {
    queue_.Forget(job);
    if (next.when == Requeue::When::kAfterDelay) queue_.AddAfter(job, next.delay);
  }
  if (next.trouble == Requeue::Trouble::kConflict) metrics_.CountConflict();
  if (next.trouble == Requeue::Trouble::kError) metrics_.CountReconcileError();
  // Log the first failure in a row, and then each time their number has doubled.
  if (!std::has_single_bit(static_cast<unsigned>(failures))) return;
  const pushpull::Log::Fields fields = {
      {"job", job}, {"failures", failures}, {"why", result.status().message()}};
  if (next.trouble == Requeue::Trouble::kError) log_.Warning("job not reconciled", fields);
  if (next.trouble == Requeue::Trouble::kUsersMistake) log_.Info("job not reconciled", fields);
}

OperatorGauges JobController::gauges() const {
  OperatorGauges gauges{.queue_depth = queue_.depth()};
  for (const auto& [name, scope] : scopes_) {
    for (const JobStore::Pointer& job : scope.watch->jobs().All()) {
      const TrainingJobStatus& status = job->value.status;
      ++gauges.jobs[std::string(NameOf(status.phase.value_or(Phase::kPending)))];
      if (IsTrue(status.conditions, "ScalingBlocked")) ++gauges.scaling_blocked;
    }
  }
  return gauges;
}

}  // namespace pushpull_operator
