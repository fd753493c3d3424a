// SPDX-License-Identifier: Apache-2.0
//
// Makes the objects of a job in the API server, and touches none of another owner.
#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "operator/api/training_job.h"
#include "operator/children/job_objects.h"
#include "operator/children/member_pod.h"
#include "operator/kube/client.h"
#include "operator/kube/object.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

// The kAlreadyExists of an object that is not the job's.
absl::Status OwnedByAnother(const ResourceType& type, const ObjectKey& key);

// Thread-safe. Every call blocks on the API server, and has these errors beside those of
// KubeClient:
//
// kAlreadyExists      an object of this name belongs to somebody else; it was not touched.
// kInvalidArgument    the API server will never take it; the text has its words.
// kPermissionDenied   it does not take it now: a quota, a rule of the namespace, a missing right.
class ObjectMaker {
 public:
  // `client` and `time` must outlive the maker.
  ObjectMaker(KubeClient& client,
              const pushpull::TimeSource& time,
              PodSettings settings,
              std::chrono::seconds call_time);

  // What the job has once: makes it so, and takes away what it shall not have any more.
  absl::Status MakeJobObjects(const ObjectMeta& owner, const TrainingJobObject& job);

  // Whether the API server would take a pod of each role. Makes none.
  absl::Status TryPods(const ObjectMeta& owner, const TrainingJobObject& job);

  // Returns the pod that is there now, also where an earlier call has made it.
  absl::StatusOr<ObjectMeta> MakePod(const ObjectMeta& owner,
                                     const TrainingJobObject& job,
                                     const MemberStart& start);

 private:
  // Null where there is none.
  absl::StatusOr<std::optional<ObjectMeta>> FindOwn(const ObjectMeta& owner,
                                                    const ResourceType& type,
                                                    const ObjectKey& key);
  absl::Status MakeSo(const ObjectMeta& owner, const JobObject& object);
  pushpull::Deadline CallDeadline() const;

  KubeClient& client_;
  const pushpull::TimeSource& time_;
  const PodSettings settings_;
  const std::chrono::seconds call_time_;
};

}  // namespace pushpull_operator
