// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/object_maker.h"

#include "absl/strings/str_cat.h"

#include "operator/api/pod.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {

using pushpull::JobRole;

absl::Status OwnedByAnother(const ResourceType& type, const ObjectKey& key) {
  return absl::AlreadyExistsError(absl::StrCat(
      type.plural,
      " ",
      ToString(key),
      " belongs to another owner; delete it or rename the job, unless a job of this name has just "
      "been deleted: then it is being removed"));
}

absl::Status ObjectMaker::EnsureJobObjects(const ObjectMeta& owner, const TrainingJobObject& job) {
  for (const JobObject& object : JobObjects(owner, job.job.spec, settings_.operator_namespace))
    PUSHPULL_RETURN_IF_ERROR(EnsureObject(owner, object));
  return absl::OkStatus();
}

// A pod of the name may be there already; then it was taken once.
absl::Status ObjectMaker::DryRunPods(const ObjectMeta& owner, const TrainingJobObject& job) {
  for (const JobRole role : {JobRole::kCoordinator, JobRole::kServer, JobRole::kWorker}) {
    const std::string body = MemberPodText(owner, job, {.member = {.role = role}}, settings_);
    absl::Status tried =
        client_
            .Create(
                PodType(), owner.key.object_namespace, body, DryRun::kYes, client_.CallDeadline())
            .status();
    if (!tried.ok() && !absl::IsAlreadyExists(tried)) return tried;
  }
  return absl::OkStatus();
}

absl::StatusOr<ObjectMeta> ObjectMaker::EnsurePod(const ObjectMeta& owner,
                                                  const TrainingJobObject& job,
                                                  const MemberStart& start) {
  const ObjectKey key{.object_namespace = owner.key.object_namespace,
                      .name = PodName(owner.key.name, start.member)};
  const std::string body = MemberPodText(owner, job, start, settings_);
  absl::StatusOr<ObjectMeta> made =
      client_.Create(PodType(), key.object_namespace, body, DryRun::kNo, client_.CallDeadline());
  if (!absl::IsAlreadyExists(made.status())) return made;
  PUSHPULL_ASSIGN_OR_RETURN(std::optional<ObjectMeta> own, FindOwn(owner, PodType(), key));
  if (!own) return absl::AbortedError(made.status().message());
  return *std::move(own);
}

absl::StatusOr<std::optional<ObjectMeta>> ObjectMaker::FindOwn(const ObjectMeta& owner,
                                                               const ResourceType& type,
                                                               const ObjectKey& key) {
  const absl::StatusOr<Object> found = client_.Get(type, key, client_.CallDeadline());
  if (absl::IsNotFound(found.status())) return std::nullopt;
  PUSHPULL_RETURN_IF_ERROR(found.status());
  if (found->meta.controller_uid == owner.uid) return found->meta;
  return OwnedByAnother(type, key);
}

absl::Status ObjectMaker::EnsureObject(const ObjectMeta& owner, const JobObject& object) {
  const bool is_wanted = !object.text.empty();
  const auto own = FindOwn(owner, object.type, object.key);
  // What the job needs no more stands in nobody's way.
  if (!is_wanted && absl::IsAlreadyExists(own.status())) return absl::OkStatus();
  PUSHPULL_RETURN_IF_ERROR(own.status());
  if (is_wanted)
    return client_.Apply(object.type, object.key, object.text, client_.CallDeadline()).status();
  if (!own->has_value()) return absl::OkStatus();
  const absl::Status removed =
      client_.Delete(object.type, object.key, {.uid = (*own)->uid}, client_.CallDeadline());
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace pushpull_operator
