// SPDX-License-Identifier: Apache-2.0
//
// Runs the operator's work while this process leads: watches of jobs and pods, one queue of jobs,
// and threads that take jobs from it and reconcile them (job_reconciler.h).
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"

#include "operator/controller/job_coordinator.h"
#include "operator/controller/job_reconciler.h"
#include "operator/controller/job_watch.h"
#include "operator/controller/requeue.h"
#include "operator/kube/cancellation.h"
#include "operator/kube/client.h"
#include "operator/kube/pausing_time.h"
#include "operator/metrics/operator_metrics.h"
#include "operator/queue/work_queue.h"
#include "runtime/base/log.h"

namespace pushpull_operator {

struct ControllerOptions {
  std::vector<std::string> namespaces;  // with jobs to run; empty: all
  int workers = 8;
  // Between two lookups of Secrets, over all namespaces.
  std::chrono::milliseconds secret_pause{100};
  ReconcilerOptions reconciler;
};

// Thread-safe, except for Start, which is called once.
class JobController {
 public:
  // All must outlive the controller.
  JobController(KubeClient& client,
                PausingTime& time,
                JobCoordinator& coordinators,
                OperatorMetrics& metrics,
                ControllerOptions options,
                pushpull::Log log);
  // Stops, and waits for all threads: for calls in progress, which KubeClient::Stop ends, and at
  // most ReconcilerOptions::coordinator_time for a coordinator.
  ~JobController();
  JobController(const JobController&) = delete;
  JobController& operator=(const JobController&) = delete;

  // Starts the threads; does not block. No job is planned before the initial lists are complete
  // (JobWatch::AwaitSynced): pods not yet in the cache would be created a second time.
  void Start();

  // OK once the initial lists are complete, else kUnavailable.
  absl::Status Ready() const;

  // Starts no further reconcile, and ends the watches.
  void Stop();
  // After Stop: waits until no reconcile is in progress. kDeadlineExceeded.
  absl::Status AwaitIdle(pushpull::Deadline deadline);

  // The present state of jobs and queue.
  OperatorGauges gauges() const;

 private:
  // One namespace or all of them: caches and their reconciler.
  struct Scope {
    std::unique_ptr<JobWatch> watch;
    std::unique_ptr<JobReconciler> reconciler;
  };

  Scope MakeScope(const std::string& object_namespace);
  void Work();
  bool AwaitSynced() const;
  void ReconcileJob(const std::string& job);

  KubeClient& client_;
  PausingTime& time_;
  JobCoordinator& coordinators_;
  OperatorMetrics& metrics_;
  const ControllerOptions options_;
  const pushpull::Log log_;
  Cancellation stop_;
  WorkQueue queue_;
  std::map<std::string, Scope> scopes_;  // by namespace; "" is every namespace
  std::vector<std::thread> workers_;     // last: they use all of the above
};

}  // namespace pushpull_operator
