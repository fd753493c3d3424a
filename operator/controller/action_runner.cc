// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/action_runner.h"

#include <utility>
#include <variant>

#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

bool IsForCoordinator(const Action& action) {
  return std::holds_alternative<RequestSize>(action) ||
         std::holds_alternative<RequestSync>(action) || std::holds_alternative<RequestSave>(action);
}

}  // namespace

ActionRunner::ActionRunner(KubeClient& client,
                           const pushpull::TimeSource& time,
                           ObjectMaker& maker,
                           CertificateKeeper& keeper,
                           CoordinatorLink& coordinator,
                           std::chrono::seconds call_time)
    : client_(client),
      time_(time),
      maker_(maker),
      keeper_(keeper),
      coordinator_(coordinator),
      call_time_(call_time) {}

// Before the first pod the Secret is read, or written: a pod does not start without it.
absl::Status ActionRunner::Run(const ObservedJob& job, const JobPlan& plan, JobState& state) {
  absl::Status first;
  bool has_refreshed = false;
  for (const Action& action : plan.actions) {
    absl::Status done;
    if (const auto* create = std::get_if<CreatePod>(&action)) {
      state.creation.Begin(create->term);
      if (!std::exchange(has_refreshed, true)) done = state.certificates.Refresh(keeper_, job);
    }
    if (done.ok()) done = RunOne(job, plan, action, state);
    first.Update(done);
    if (!done.ok() && !IsForCoordinator(action)) break;
  }
  return first;
}

absl::Status ActionRunner::RunOne(const ObservedJob& job,
                                  const JobPlan& plan,
                                  const Action& action,
                                  JobState& state) {
  if (const auto* create = std::get_if<CreatePod>(&action))
    return Create(job, plan, *create, state);
  if (const auto* pod = std::get_if<DeletePod>(&action)) {
    DeleteOptions options{.uid = pod->uid};
    if (pod->grace == DeletePod::Grace::kNone) options.grace = std::chrono::seconds(0);
    return Delete(
        PodType(), {.object_namespace = job.key().object_namespace, .name = pod->name}, options);
  }
  if (const auto* whole = std::get_if<DeleteJob>(&action))
    return Delete(TrainingJobType(), job.key(), {.uid = whole->uid, .propagation = "Background"});
  return coordinator_.Send(job, action, state);
}

absl::Status ActionRunner::Create(const ObservedJob& job,
                                  const JobPlan& plan,
                                  const CreatePod& create,
                                  JobState& state) {
  const absl::StatusOr<ObjectMeta> created = CreateWithObjects(job, plan, create, state.creation);
  state.creation.End(created.status(), create.term);
  PUSHPULL_RETURN_IF_ERROR(created.status());
  state.expectations.ExpectPod(*created, job.now);
  return absl::OkStatus();
}

// With the coordinator, the objects that the job has once. Pods of every role are tried before
// anything runs: a mistake in the workers' template is found before servers have started for them.
absl::StatusOr<ObjectMeta> ActionRunner::CreateWithObjects(const ObservedJob& job,
                                                           const JobPlan& plan,
                                                           const CreatePod& create,
                                                           CreationState& creation) {
  if (create.member.role == pushpull::JobRole::kCoordinator) {
    PUSHPULL_RETURN_IF_ERROR(maker_.EnsureJobObjects(job.meta(), job.object()));
    if (!creation.is_tried()) PUSHPULL_RETURN_IF_ERROR(maker_.DryRunPods(job.meta(), job.object()));
    creation.OnTried();
    creation.OnCoordinatorRequest();
  }
  return maker_.EnsurePod(job.meta(),
                          job.object(),
                          {.member = create.member,
                           .term = create.term,
                           .goes_on = plan.status.checkpoint.has_value()});
}

absl::Status ActionRunner::Delete(const ResourceType& type,
                                  const ObjectKey& key,
                                  const DeleteOptions& options) {
  const absl::Status deleted =
      client_.Delete(type, key, options, pushpull::Deadline(time_.Now() + call_time_));
  return absl::IsNotFound(deleted) || absl::IsAborted(deleted) ? absl::OkStatus() : deleted;
}

}  // namespace pushpull_operator
