// SPDX-License-Identifier: Apache-2.0
//
// A TrainingJob as the API server has it: the manifest of runtime/job, and the operator's status.
// Only ever read; the operator writes patches of the status, so that no field of a newer version is
// lost. Pure.
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
  // Without annotations; merged over the runtime recorded in the status if the job names that one.
  pushpull::TrainingJob job;
  std::string manifest;  // the same as JSON, for the job's programs
  std::string runtime;   // named by its spec; empty: none
  // Whether the spec itself has both numbers of replicas, where others read and change them.
  bool states_size = true;
  // Why the spec is invalid, in the words of `pushpull validate`: unknown fields, values of the
  // wrong type, broken rules. Empty: it is valid.
  std::vector<pushpull::ManifestProblem> problems;
  // Why the object could not be read completely (Object::problem); then only spec.managedBy of
  // `job` is set, and `manifest` is empty. Empty: it could.
  std::string unreadable;
  TrainingJobStatus status;
};

// Accepts any object; `problems` has its errors.
TrainingJobObject DecodeTrainingJobObject(const Object& object);

// Whether the runtime that it names is recorded in its status.
bool HasRuntime(const TrainingJobObject& object);

// The merge patch that writes the replicas of `spec` into this version of a TrainingJob.
std::string ReplicasPatchText(const pushpull::TrainingJobSpec& spec,
                              const std::string& resource_version);

}  // namespace pushpull_operator
