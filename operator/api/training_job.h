// SPDX-License-Identifier: Apache-2.0
//
// A TrainingJob as the API server has it: the manifest of runtime/job, and the operator's status.
// It is only ever read as a whole; what the operator writes is a patch of the status, so that no
// field of a newer version is lost. Pure.
#pragma once

#include <string>
#include <vector>

#include "operator/api/training_job_status.h"
#include "operator/api/wall_time.h"
#include "operator/kube/object.h"
#include "operator/kube/resource.h"
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
  // Why the spec cannot be followed, as `pushpull validate` says it: fields that this version does
  // not know, values of another kind, rules that are broken. Empty: it can.
  std::vector<pushpull::ManifestProblem> problems;
  TrainingJobStatus status;
};

// Takes any object; what is wrong with it is in `problems`.
TrainingJobObject DecodeTrainingJobObject(const Object& object);

}  // namespace pushpull_operator
