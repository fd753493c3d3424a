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
  pushpull::TrainingJob job;  // without annotations
  std::string manifest;       // the same as JSON, for the programs of the job
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

}  // namespace pushpull_operator
