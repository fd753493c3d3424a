// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/job_controller.h"

#include <pthread.h>

#include <bit>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/api/condition.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {

using pushpull::Deadline;

namespace {

// How often a waiting worker looks whether it shall end, which also wakes it.
constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::seconds kQueueLook{60};
// After an outage of the API server nobody tells that it is back: jobs are not to wait for longer.
constexpr BackoffTimes kBackoff{.longest = std::chrono::minutes(1)};

ObjectKey KeyOf(const std::string& job) {
  const size_t slash = job.find('/');
  return {.object_namespace = job.substr(0, slash), .name = job.substr(slash + 1)};
}

// Of the calling thread since it began.
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
  if (options_.namespaces.empty()) places_.emplace("", MakePlace(""));
  for (const std::string& name : options_.namespaces) places_.emplace(name, MakePlace(name));
}

JobController::~JobController() {
  Stop();
  for (std::thread& worker : workers_) worker.join();
}

JobController::Place JobController::MakePlace(const std::string& object_namespace) {
  Place place;
  place.watch = std::make_unique<JobWatch>(
      client_,
      time_,
      JobWatchOptions{.object_namespace = object_namespace,
                      .on_change = [this](const std::string& job) { queue_.Add(job); }},
      log_);
  place.reconciler = std::make_unique<JobReconciler>(
      client_, time_, place.watch->jobs(), place.watch->pods(), coordinators_, options_.reconciler);
  return place;
}

void JobController::Start() {
  for (auto& [name, place] : places_) place.watch->Start();
  for (int i = 0; i < options_.workers; ++i) {
    workers_.emplace_back([this, i] {
      pthread_setname_np(pthread_self(), absl::StrCat("op-worker-", i).c_str());
      Work();
    });
  }
}

void JobController::Stop() {
  stop_.Cancel();
  for (auto& [name, place] : places_) place.watch->Stop();
  queue_.ShutDown();
}

absl::Status JobController::AwaitIdle(Deadline deadline) {
  return queue_.AwaitDrained(deadline);
}

absl::Status JobController::Ready() const {
  for (const auto& [name, place] : places_) {
    if (place.watch->AwaitSynced(Deadline::After(std::chrono::seconds(0))).ok()) continue;
    return absl::UnavailableError(
        absl::StrCat("the jobs and pods of ",
                     name.empty() ? "the cluster" : absl::StrCat("namespace ", name),
                     " are not listed yet"));
  }
  return absl::OkStatus();
}

bool JobController::AwaitSynced() const {
  for (const auto& [name, place] : places_) {
    while (!place.watch->AwaitSynced(Deadline::After(kLook)).ok()) {
      if (stop_.is_cancelled()) return false;
    }
  }
  return true;
}

void JobController::Work() {
  // One that is stopped before that still empties the queue.
  const bool has_synced = AwaitSynced();
  for (;;) {
    const absl::StatusOr<std::string> job = queue_.Take(Deadline::After(kQueueLook));
    if (absl::IsCancelled(job.status())) return;
    if (!job.ok()) continue;
    if (has_synced && !stop_.is_cancelled()) LookAt(*job);
    queue_.Done(*job);
  }
}

void JobController::LookAt(const std::string& job) {
  const ObjectKey key = KeyOf(job);
  const auto place = places_.find(options_.namespaces.empty() ? "" : key.object_namespace);
  const pushpull::SteadyTime begin = time_.Now();
  const pushpull::Duration computed_before = ThreadCpuTime();
  const auto result = place->second.reconciler->Reconcile(key);
  metrics_.ObserveReconcile(time_.Now() - begin, ThreadCpuTime() - computed_before);
  const NextLook next = DecideNextLook(result);
  int failures = 0;
  if (next.when == NextLook::When::kAfterFailure) {
    failures = queue_.AddAfterFailure(job);
  } else {
    queue_.Forget(job);
    if (next.when == NextLook::When::kAfterDelay) queue_.AddAfter(job, next.delay);
  }
  Tell(job, next, failures, result.status());
}

void JobController::Tell(const std::string& job,
                         const NextLook& next,
                         int failures,
                         const absl::Status& status) {
  switch (next.trouble) {
    case NextLook::Trouble::kNone:
      return;
    case NextLook::Trouble::kConflict:
      return metrics_.CountConflict();
    case NextLook::Trouble::kError:
      break;
  }
  metrics_.CountReconcileError();
  // The first failure in a row, and then each time that there are twice as many.
  if (std::has_single_bit(static_cast<unsigned>(failures))) {
    log_.Warning("job not reconciled",
                 {{"job", job}, {"failures", failures}, {"why", status.message()}});
  }
}

OperatorGauges JobController::gauges() const {
  OperatorGauges gauges{.queue_depth = queue_.depth()};
  for (const auto& [name, place] : places_) {
    for (const JobStore::Pointer& job : place.watch->jobs().All()) {
      const TrainingJobStatus& status = job->value.status;
      ++gauges.jobs[std::string(NameOf(status.phase.value_or(Phase::kPending)))];
      const Condition* blocked = FindCondition(status.conditions, "ScalingBlocked");
      if (blocked != nullptr && blocked->status == kConditionTrue) ++gauges.scaling_blocked;
    }
  }
  return gauges;
}

}  // namespace pushpull_operator
