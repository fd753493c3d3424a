// SPDX-License-Identifier: Apache-2.0
//
// Creates the objects of a job in the API server, and touches none that have another owner.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "operator/api/training_job.h"
#include "operator/children/job_objects.h"
#include "operator/children/member_pod.h"
#include "operator/kube/client.h"
#include "operator/kube/object.h"

namespace pushpull_operator {

// The kAlreadyExists of an object that is not the job's.
absl::Status OwnedByAnother(const ResourceType& type, const ObjectKey& key);

// Thread-safe. Every call blocks on the API server, and has these errors besides those of
// KubeClient:
//
//   kAlreadyExists      an object of this name has another owner; it was not touched.
//   kAborted            an object of this name was there, and is gone by now. Retry.
//   kInvalidArgument    the API server will never accept it, and says why in the message.
//   kPermissionDenied   not accepted for now: a quota, a rule of the namespace, a missing right.
class ObjectMaker {
 public:
  // `client` must outlive the maker.
  ObjectMaker(KubeClient& client, PodSettings settings)
      : client_(client), settings_(std::move(settings)) {}

  // The objects of which the job has one each.
  std::vector<JobObject> ObjectsOf(const ObjectMeta& owner, const TrainingJobObject& job) const {
    return JobObjects(owner, job.job.spec, settings_.operator_namespace);
  }
  // Creates or corrects such an object, or deletes one that the spec switched off. Returns
  // VersionOf it; empty: there is none.
  absl::StatusOr<std::string> EnsureObject(const ObjectMeta& owner, const JobObject& object);

  // Whether the API server would accept a pod of each role. Creates none.
  absl::Status DryRunPods(const ObjectMeta& owner, const TrainingJobObject& job);

  // Creates the pod; if an earlier call created it, returns that one with its labels healed.
  absl::StatusOr<ObjectMeta> EnsurePod(const ObjectMeta& owner,
                                       const TrainingJobObject& job,
                                       const MemberStart& start);

  // Sets the labels of a member's pod by which the operator, the Service and the NetworkPolicy find
  // it; others stay. kNotFound, kAborted: it is no longer the pod of this uid.
  absl::Status HealLabels(const ObjectMeta& owner, const MemberId& member, const std::string& uid);

 private:
  // Nothing if there is none.
  absl::StatusOr<std::optional<Object>> FindOwn(const ObjectMeta& owner,
                                                const ResourceType& type,
                                                const ObjectKey& key);

  KubeClient& client_;
  const PodSettings settings_;
};

}  // namespace pushpull_operator
