// SPDX-License-Identifier: Apache-2.0
//
// A TrainingJob as the API server has it: the manifest of runtime/job, and the operator's status.
// It is only ever read; what the operator writes is a patch of the status, so that no
// field of a newer version is lost. Pure.
#pragma once

#include <string>
#include <vector>

#include "operator/api/training_job_status.h"
#include "operator/kube/object.h"
#include "runtime/job/problems.h"
#include "runtime/job/training_job.h"

namespace pushpull_operator {

inline const ResourceType& TrainingJobType() {
  static const ResourceType type{
      .group = "pushpull.dev", .version = "v1alpha1", .plural = "trainingjobs"};
  return type;
}

struct TrainingJobObject {
  // Without annotations, and merged over the runtime that is noted in the status, if that is the
  // one that it names.
  pushpull::TrainingJob job;
  std::string manifest;  // the same as JSON, for the programs of the job
  std::string runtime;   // that its spec names; empty: none
  // The spec itself has both numbers of replicas, which others read and scale there.
  bool states_size = true;
  // Why the spec is invalid, in the messages of `pushpull validate`: unknown fields, values of
  // another kind, broken rules. Empty: it is valid.
  std::vector<pushpull::ManifestProblem> problems;
  // Why the object could not be read completely (Object::problem): of `job` and `manifest` nothing
  // is set but spec.managedBy. Empty: it could.
  std::string unreadable;
  TrainingJobStatus status;
};

// Accepts any object; `problems` has its errors.
TrainingJobObject DecodeTrainingJobObject(const Object& object);

// The runtime that it names is noted in its status.
bool HasRuntime(const TrainingJobObject& object);

// The merge patch that writes the numbers of replicas of `spec` into this version of a TrainingJob.
std::string ReplicasPatchText(const pushpull::TrainingJobSpec& spec,
                              const std::string& resource_version);

}  // namespace pushpull_operator
