// SPDX-License-Identifier: Apache-2.0
//
// Carries out the actions of a plan, in their order.
#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "operator/controller/coordinator_link.h"
#include "operator/controller/job_state.h"
#include "operator/controller/object_maker.h"
#include "operator/controller/observed_job.h"
#include "operator/kube/client.h"
#include "operator/plan/job_plan.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

// Thread-safe, as long as a JobState is with one thread.
class ActionRunner {
 public:
  // All must outlive the runner. `call_time` is the limit of each call to the API server.
  ActionRunner(KubeClient& client,
               const pushpull::TimeSource& time,
               ObjectMaker& maker,
               CertificateKeeper& keeper,
               CoordinatorLink& coordinator,
               std::chrono::seconds call_time);

  // Blocks on API server and coordinator. Returns the first error: one of the coordinator does not
  // keep the others from being carried out, every other one ends the run.
  absl::Status Run(const ObservedJob& job, const JobPlan& plan, JobState& state);

 private:
  absl::Status RunOne(const ObservedJob& job,
                      const JobPlan& plan,
                      const Action& action,
                      JobState& state);
  absl::Status Create(const ObservedJob& job,
                      const JobPlan& plan,
                      const CreatePod& create,
                      JobState& state);
  absl::StatusOr<ObjectMeta> CreateWithObjects(const ObservedJob& job,
                                               const JobPlan& plan,
                                               const CreatePod& create,
                                               CreationState& creation);
  // What is missing, or another object by now, counts as deleted.
  absl::Status Delete(const ResourceType& type, const ObjectKey& key, const DeleteOptions& options);

  KubeClient& client_;
  const pushpull::TimeSource& time_;
  ObjectMaker& maker_;
  CertificateKeeper& keeper_;
  CoordinatorLink& coordinator_;
  const std::chrono::seconds call_time_;
};

}  // namespace pushpull_operator
