// SPDX-License-Identifier: Apache-2.0
//
// Creates the TrainingJobWorkers of a job and carries out what plan/workers_scale.h decides, so
// that `kubectl scale` and an HPA can change the number of workers. Writes the numbers of servers
// and workers into a job that has them by default or from its runtime: /scale reads only the spec.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "operator/api/training_job_workers.h"
#include "operator/cache/store.h"
#include "operator/controller/job_state.h"
#include "operator/controller/observed_job.h"
#include "operator/kube/client.h"

namespace pushpull_operator {

// They have the keys of their jobs.
using WorkersStore = Store<TrainingJobWorkers>;

// Thread-safe, as long as only one thread at a time uses a JobState; remembers nothing.
class WorkerScaler {
 public:
  struct Outcome {
    bool has_changed_job = false;  // nothing is planned until the caches show it
    std::string note = {};         // what was refused, for an event; empty: nothing was
  };

  // Both must outlive the scaler.
  WorkerScaler(KubeClient& client, const WorkersStore& workers)
      : client_(client), workers_(workers) {}

  // At most one write, and no write to a TrainingJobWorkers before their initial list is complete.
  // `job` is managed and valid. Blocks on the API server. Errors besides those of KubeClient:
  //
  //   kAlreadyExists  the TrainingJobWorkers of this name is not the job's; it was not touched.
  //   kAborted        somebody else was faster. Retry.
  absl::StatusOr<Outcome> Scale(const ObservedJob& job, JobState& state);

 private:
  absl::StatusOr<Outcome> WriteSize(const ObservedJob& job);
  absl::StatusOr<Outcome> SetJob(const ObservedJob& job,
                                 int replicas,
                                 const Stored<TrainingJobWorkers>& shown);
  absl::Status Patch(const ObjectKey& key, const std::string& text, const std::string& subresource);

  KubeClient& client_;
  const WorkersStore& workers_;
};

}  // namespace pushpull_operator
