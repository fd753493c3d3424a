// SPDX-License-Identifier: Apache-2.0
//
// Creates the objects of a job in the API server, and touches none of another owner.
#pragma once

#include <chrono>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "operator/api/training_job.h"
#include "operator/children/job_objects.h"
#include "operator/children/member_pod.h"
#include "operator/kube/client.h"
#include "operator/kube/object.h"
#include "operator/plan/observation.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

// The kAlreadyExists of an object that is not the job's.
absl::Status OwnedByAnother(const ResourceType& type, const ObjectKey& key);

// What the next plan is told of an object that could not be created; nothing: it was, or the error
// is no lasting one.
std::optional<Obstacle> ObstacleOf(const absl::Status& created);

// Thread-safe. Every call blocks on the API server, and has these errors beside those of
// KubeClient:
//
//   kAlreadyExists      an object of this name has another owner; it was not touched.
//   kInvalidArgument    the API server will never accept it, and says why in the message.
//   kPermissionDenied   not accepted for now: a quota, a rule of the namespace, a missing right.
class ObjectMaker {
 public:
  // `client` and `time` must outlive the maker.
  ObjectMaker(KubeClient& client,
              const pushpull::TimeSource& time,
              PodSettings settings,
              std::chrono::seconds call_time);

  // Creates or updates the objects that the job has once, and deletes those that its spec switched
  // off.
  absl::Status EnsureJobObjects(const ObjectMeta& owner, const TrainingJobObject& job);

  // Whether the API server would accept a pod of each role. Creates none.
  absl::Status DryRunPods(const ObjectMeta& owner, const TrainingJobObject& job);

  // Returns the existing pod, also where an earlier call has created it.
  absl::StatusOr<ObjectMeta> EnsurePod(const ObjectMeta& owner,
                                       const TrainingJobObject& job,
                                       const MemberStart& start);

 private:
  // Null where there is none.
  absl::StatusOr<std::optional<ObjectMeta>> FindOwn(const ObjectMeta& owner,
                                                    const ResourceType& type,
                                                    const ObjectKey& key);
  absl::Status EnsureObject(const ObjectMeta& owner, const JobObject& object);
  pushpull::Deadline CallDeadline() const;

  KubeClient& client_;
  const pushpull::TimeSource& time_;
  const PodSettings settings_;
  const std::chrono::seconds call_time_;
};

}  // namespace pushpull_operator
