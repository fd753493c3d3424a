// SPDX-License-Identifier: Apache-2.0
//
// Makes the TrainingJobWorkers of a job, and carries out what plan/workers_scale.h decides: so
// `kubectl scale` and an HPA change the number of workers. Writes numbers of servers and workers
// into a job that has them by default, or from its runtime: what /scale reads is in the spec alone.
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

// By their keys, which are those of their jobs.
using WorkersStore = Store<TrainingJobWorkers>;

// Thread-safe, as long as a JobState is with one thread; remembers nothing.
class WorkerScaler {
 public:
  struct Outcome {
    bool has_changed_job = false;  // the caches show it later; nothing is planned until then
    std::string note = {};         // of what was refused, for an event; empty: nothing was
  };

  // Both must outlive the scaler.
  WorkerScaler(KubeClient& client, const WorkersStore& workers)
      : client_(client), workers_(workers) {}

  // One write at most, and none before the first listing is in. `job` is managed and valid. Blocks
  // on the API server. Errors beside those of KubeClient:
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
