// SPDX-License-Identifier: Apache-2.0
//
// Reconciles one job: observes caches and coordinator, plans, writes the status, then acts
// (job_plan.h gives the reason for this order).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "operator/controller/certificate_keeper.h"
#include "operator/controller/child_cache.h"
#include "operator/controller/job_coordinator.h"
#include "operator/controller/job_healer.h"
#include "operator/controller/job_state.h"
#include "operator/controller/node_racks.h"
#include "operator/controller/object_maker.h"
#include "operator/controller/observed_job.h"
#include "operator/controller/worker_scaler.h"
#include "operator/kube/client.h"
#include "operator/plan/job_plan.h"
#include "runtime/base/mutex.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

struct ReconcilerOptions {
  PodSettings pods;
  std::string instance;           // of this operator, for events
  std::function<WallTime()> now;  // of the API server
  // Timeout of each call to a coordinator; coordinators answer from memory. A silent one keeps a
  // worker from other jobs for this long.
  std::chrono::seconds coordinator_time{3};
  // For the certificates of a job's members.
  std::chrono::seconds certificate_lifetime{std::chrono::days(90)};
  // A restart was counted, for this reason; for metrics. May be empty.
  std::function<void(const std::string& reason)> on_restart;
};

// All must outlive their users.
struct JobCaches {
  const JobStore& jobs;
  const PodStore& pods;
  ChildCache& children;
  const WorkersStore& workers;
  const RuntimeStore& runtimes;
};

// Thread-safe; the work queue gives a job to one thread at a time.
class JobReconciler {
 public:
  // All must outlive the reconciler.
  JobReconciler(KubeClient& client,
                const pushpull::TimeSource& time,
                const JobCaches& caches,
                JobCoordinator& coordinators,
                ReconcilerOptions options);

  // Blocks on calls to the API server and the job's coordinator. Returns the time after which to
  // requeue the job even without a change; nothing: only a change matters, or the job is gone.
  // After an error, requeue with growing delays: what was written stays, and is not written again.
  absl::StatusOr<std::optional<std::chrono::seconds>> Reconcile(const ObjectKey& job)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Pass;

  JobState Recall(const ObjectKey& key, const std::string& uid) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the caches still have this job, and it is not being deleted.
  bool IsThere(const ObjectMeta& job) const;
  // The runtime that the job names; null if there is none.
  RuntimeStore::Pointer RuntimeOf(const Stored<TrainingJobObject>& job) const;

  KubeClient& client_;
  const pushpull::TimeSource& time_;  // for deadlines
  const JobStore& jobs_;
  const PodStore& pods_;
  const RuntimeStore& runtimes_;
  ChildCache& children_;
  JobCoordinator& coordinators_;
  const ReconcilerOptions options_;
  ObjectMaker maker_;
  CertificateKeeper keeper_;
  JobHealer healer_;
  WorkerScaler scaler_;
  NodeRacks racks_;

  pushpull::Mutex mu_;
  std::map<ObjectKey, JobState> states_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
