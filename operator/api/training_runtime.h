// SPDX-License-Identifier: Apache-2.0
//
// A TrainingRuntime as the API server has it: jobs that name it are merged over it. Only ever read.
// Pure.
#pragma once

#include <string>

#include "operator/api/training_job_status.h"
#include "operator/kube/object.h"

namespace pushpull_operator {

inline const ResourceType& TrainingRuntimeType() {
  static const ResourceType type{
      .group = "pushpull.dev", .version = "v1alpha1", .plural = "trainingruntimes"};
  return type;
}

struct TrainingRuntime {
  RuntimeStatus record;  // recorded in the status of a job that begins to use it
  // Why no job can be merged over it: it is too large to be recorded. Empty: jobs can.
  std::string problem;
};

// Accepts any object.
TrainingRuntime DecodeTrainingRuntimeObject(const Object& object);

}  // namespace pushpull_operator
