// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/object_maker.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

#include "operator/api/member.h"
#include "operator/api/pod.h"
#include "operator/controller/child_cache.h"
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

namespace {

const char* FieldOf(JobRole role) {
  switch (role) {
    case JobRole::kServer:
      return "spec.servers";
    case JobRole::kWorker:
      return "spec.workers";
    case JobRole::kCoordinator:
      return "spec.coordinator";
  }
  return "spec";
}

// The API server names a field of the pod; the user looks for it in the manifest.
absl::Status AboutTemplateOf(JobRole role, const absl::Status& tried) {
  absl::Status about(tried.code(),
                     absl::StrCat("the pod that spec.podDefaults and ",
                                  FieldOf(role),
                                  " describe is refused: ",
                                  tried.message()));
  tried.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { about.SetPayload(url, payload); });
  return about;
}

}  // namespace

// A pod of the name may exist already; then the API server has accepted it.
absl::Status ObjectMaker::DryRunPods(const ObjectMeta& owner, const TrainingJobObject& job) {
  for (const JobRole role : {JobRole::kCoordinator, JobRole::kServer, JobRole::kWorker}) {
    const std::string body = MemberPodText(owner, job, {.member = {.role = role}}, settings_);
    absl::Status tried =
        client_
            .Create(
                PodType(), owner.key.object_namespace, body, DryRun::kYes, client_.CallDeadline())
            .status();
    if (absl::IsInvalidArgument(tried)) return AboutTemplateOf(role, tried);
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
  PUSHPULL_ASSIGN_OR_RETURN(const std::optional<Object> own, FindOwn(owner, PodType(), key));
  if (!own) return absl::AbortedError(made.status().message());
  // Without its labels, it is in no cache.
  if (!HasLabels(own->meta, MemberLabels(owner.key.name, start.member)))
    PUSHPULL_RETURN_IF_ERROR(HealLabels(owner, start.member, own->meta.uid));
  return own->meta;
}

absl::Status ObjectMaker::HealLabels(const ObjectMeta& owner,
                                     const MemberId& member,
                                     const std::string& uid) {
  const ObjectKey key{.object_namespace = owner.key.object_namespace,
                      .name = PodName(owner.key.name, member)};
  return client_
      .MergePatch(PodType(),
                  key,
                  LabelsPatchText(uid, MemberLabels(owner.key.name, member)),
                  "",
                  client_.CallDeadline())
      .status();
}

absl::StatusOr<std::optional<Object>> ObjectMaker::FindOwn(const ObjectMeta& owner,
                                                           const ResourceType& type,
                                                           const ObjectKey& key) {
  absl::StatusOr<Object> found = client_.Get(type, key, client_.CallDeadline());
  if (absl::IsNotFound(found.status())) return std::nullopt;
  PUSHPULL_RETURN_IF_ERROR(found.status());
  if (found->meta.controller_uid == owner.uid) return *std::move(found);
  return OwnedByAnother(type, key);
}

absl::StatusOr<std::string> ObjectMaker::EnsureObject(const ObjectMeta& owner,
                                                      const JobObject& object) {
  const bool is_wanted = !object.text.empty();
  const auto own = FindOwn(owner, object.type, object.key);
  // The job no longer needs an object of this name, so another owner's may stay.
  if (!is_wanted && absl::IsAlreadyExists(own.status())) return "";
  PUSHPULL_RETURN_IF_ERROR(own.status());
  const pushpull::Deadline deadline = client_.CallDeadline();
  if (!is_wanted) {
    if (!own->has_value()) return "";
    const absl::Status removed =
        client_.Delete(object.type, object.key, {.uid = (*own)->meta.uid}, deadline);
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
    return "";
  }
  PUSHPULL_ASSIGN_OR_RETURN(
      const ObjectMeta written,
      own->has_value()
          ? client_.MergePatch(object.type, object.key, HealPatchText(object, **own), "", deadline)
          : client_.Apply(object.type, object.key, object.text, deadline));
  return VersionOf(written);
}

}  // namespace pushpull_operator
