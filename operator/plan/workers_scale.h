// SPDX-License-Identifier: Apache-2.0
//
// Keeps the number of workers in a job's spec and in its TrainingJobWorkers equal, whichever of the
// two somebody changes. One write at a time: the next is decided once the caches show it. Pure.
#pragma once

#include <string>
#include <variant>

#include "operator/api/training_job.h"
#include "operator/api/training_job_workers.h"
#include "operator/kube/object.h"

namespace pushpull_operator {

struct CreateWorkersScale {
  WorkersSize size;
  friend bool operator==(const CreateWorkersScale&, const CreateWorkersScale&) = default;
};
// Somebody scaled the TrainingJobWorkers.
struct SetJobWorkers {
  int replicas = 0;
  friend bool operator==(const SetJobWorkers&, const SetJobWorkers&) = default;
};
// Somebody changed the job.
struct SetWorkersSize {
  WorkersSize size;
  friend bool operator==(const SetWorkersSize&, const SetWorkersSize&) = default;
};
struct SetScaleStatus {
  WorkersScaleStatus status;
  friend bool operator==(const SetScaleStatus&, const SetScaleStatus&) = default;
};
// std::monostate: nothing is to be done.
using ScaleStep =
    std::variant<std::monostate, CreateWorkersScale, SetJobWorkers, SetWorkersSize, SetScaleStatus>;

// What a TrainingJobWorkers of this job should say.
WorkersSize WorkersSizeOf(const pushpull::TrainingJobSpec& spec);

// `job` is managed and valid; `workers` is null if there is none, and `generation` is its
// metadata.generation. If both numbers were changed, the job's wins.
ScaleStep NextScaleStep(const std::string& name,
                        const TrainingJobObject& job,
                        const TrainingJobWorkers* workers,
                        int64_t generation);

}  // namespace pushpull_operator
