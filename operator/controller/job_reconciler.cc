// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/job_reconciler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/api/event.h"
#include "operator/plan/plan.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {

using std::chrono::seconds;

namespace {

// The earliest requeue, also while the caches are behind.
constexpr seconds kRequeueMin{1};

Observation ObservationOf(const ObservedJob& job, const JobState& state) {
  Observation seen{.meta = job.meta(),
                   .object = job.object(),
                   .save = state.save,
                   .progress_time = state.progress_time,
                   .refusal = state.creation.refusal(),
                   .unused_term = state.creation.unused_term(),
                   .now = job.now};
  for (const PodStore::Pointer& pod : job.pods)
    seen.pods.push_back({.meta = pod->meta, .pod = pod->value});
  return seen;
}

}  // namespace

JobReconciler::JobReconciler(KubeClient& client,
                             const pushpull::TimeSource& time,
                             const JobStore& jobs,
                             const PodStore& pods,
                             JobCoordinator& coordinators,
                             ReconcilerOptions options)
    : client_(client),
      time_(time),
      jobs_(jobs),
      pods_(pods),
      options_(std::move(options)),
      maker_(client, time, options_.pods, options_.call_time),
      keeper_(client, time, options_.certificate_lifetime, options_.call_time),
      coordinator_(coordinators, keeper_, time, options_.coordinator_time),
      actions_(client, time, maker_, keeper_, coordinator_, options_.call_time) {}

absl::StatusOr<std::optional<seconds>> JobReconciler::Reconcile(const ObjectKey& key) {
  const JobStore::Pointer stored = jobs_.Find(key);
  if (stored == nullptr) {
    pushpull::MutexLock lock(mu_);
    states_.erase(key);
    return std::nullopt;
  }
  const ObservedJob job{
      .stored = *stored, .pods = pods_.FindByIndex(ToString(key)), .now = options_.now()};
  JobState state = Recall(key, stored->meta.uid);
  absl::StatusOr<std::optional<seconds>> requeue_after = kRequeueMin;
  if (state.expectations.AreMet(job)) requeue_after = ReconcileObserved(job, state);
  Remember(key, std::move(state));
  return requeue_after;
}

JobState JobReconciler::Recall(const ObjectKey& key, const std::string& uid) {
  pushpull::MutexLock lock(mu_);
  const auto found = states_.find(key);
  if (found != states_.end() && found->second.uid == uid) return found->second;
  return {.uid = uid};
}

void JobReconciler::Remember(const ObjectKey& key, JobState state) {
  pushpull::MutexLock lock(mu_);
  states_[key] = std::move(state);
}

// A job whose certificates cannot be read for now goes on with those it has: the error comes last.
absl::StatusOr<std::optional<seconds>> JobReconciler::ReconcileObserved(const ObservedJob& job,
                                                                        JobState& state) {
  if (!job.object().job.spec.suspend) state.save.reset();
  Observation seen = ObservationOf(job, state);
  const bool is_active = IsActive(seen);
  const absl::Status refreshed = state.certificates.RefreshIfDue(keeper_, job, is_active);
  seen.coordinator = coordinator_.GetReport(job, state);
  const std::optional<Obstacle>& unreadable = state.certificates.obstacle();
  seen.obstacle = unreadable ? unreadable : state.creation.obstacle();
  const JobPlan plan = Plan(seen);
  const absl::Status patched = PatchStatus(job, plan, state);
  // Deleted after the cache saw it: the watch is about to report that, and there is nothing left to
  // do.
  if (absl::IsNotFound(patched)) return std::nullopt;
  PUSHPULL_RETURN_IF_ERROR(patched);
  RecordEvents(job, plan, state.events);
  PUSHPULL_RETURN_IF_ERROR(actions_.Run(job, plan, state));
  PUSHPULL_RETURN_IF_ERROR(refreshed);
  std::optional<WallTime> requeue_at = plan.requeue_at;
  const std::optional<WallTime> recheck_at = state.certificates.recheck_at();
  if (is_active && job.HasPods() && recheck_at)
    requeue_at = std::min(requeue_at.value_or(WallTime::max()), *recheck_at);
  if (!requeue_at) return std::nullopt;
  return std::max(*requeue_at - job.now, kRequeueMin);
}

absl::Status JobReconciler::PatchStatus(const ObservedJob& job,
                                        const JobPlan& plan,
                                        JobState& state) {
  const std::string& version = job.meta().resource_version;
  const std::string patch = StatusPatchText(job.object().status, plan.status, version);
  if (patch.empty()) return absl::OkStatus();
  PUSHPULL_RETURN_IF_ERROR(
      client_
          .MergePatch(
              TrainingJobType(), job.key(), patch, {.subresource = "status"}, CallDeadline())
          .status());
  state.expectations.ExpectUpdate(version, job.now);
  if (plan.status.progress != job.object().status.progress) state.progress_time = job.now;
  return absl::OkStatus();
}

// Only a status that was written has events, so the version that it replaced names them: recorded
// again, they are the same.
void JobReconciler::RecordEvents(const ObservedJob& job,
                                 const JobPlan& plan,
                                 EventHistory& history) {
  int number = 0;
  for (const Event& event : plan.events) {
    if (event.action == kRestartAction && options_.on_restart) options_.on_restart(event.reason);
    const std::string name =
        absl::StrCat(job.key().name, ".", job.meta().resource_version, ".", ++number);
    const auto write = history.Record(event, name, job.now);
    if (write) WriteEvent(job, event, *write);
  }
}

// Best effort: an event that cannot be written fails nothing.
void JobReconciler::WriteEvent(const ObservedJob& job,
                               const Event& event,
                               const EventWrite& write) {
  const ObjectKey key{.object_namespace = job.key().object_namespace, .name = write.name};
  if (write.count > 1) {
    return client_
        .MergePatch(EventType(), key, EventSeriesText(write.count, job.now), {}, CallDeadline())
        .status()
        .IgnoreError();
  }
  client_
      .Create(EventType(),
              key.object_namespace,
              NewEventText(key, event, job.meta(), options_.instance, job.now),
              DryRun::kNo,
              CallDeadline())
      .status()
      .IgnoreError();
}

pushpull::Deadline JobReconciler::CallDeadline() const {
  return pushpull::Deadline(time_.Now() + options_.call_time);
}

}  // namespace pushpull_operator
