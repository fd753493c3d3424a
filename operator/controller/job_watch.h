// SPDX-License-Identifier: Apache-2.0
//
// Mirrors the jobs of one namespace, or of all, with their pods and other objects, from the API
// server: one thread for each kind.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"

#include "operator/cache/reflector.h"
#include "operator/controller/child_cache.h"
#include "operator/controller/observed_job.h"
#include "operator/controller/secret_poll.h"
#include "operator/controller/worker_scaler.h"
#include "operator/kube/cancellation.h"
#include "operator/kube/client.h"
#include "operator/kube/pausing_time.h"
#include "runtime/base/log.h"

namespace pushpull_operator {

// Start is called once; everything else is thread-safe.
class JobWatch {
 public:
  // `client` and `time` must outlive the watch. Empty namespace: all of them.
  JobWatch(KubeClient& client,
           PausingTime& time,
           const std::string& object_namespace,
           const OnJobChange& on_change,
           SecretPace secret_pace,
           pushpull::Log log);
  // Stops and waits for the threads; only KubeClient::Stop ends a list in progress.
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  void Start();
  void Stop() { stop_.Cancel(); }

  const JobStore& jobs() const { return jobs_; }
  const PodStore& pods() const { return pods_; }
  const WorkersStore& workers() const { return workers_; }
  const RuntimeStore& runtimes() const { return runtimes_; }
  ChildCache& children() { return children_; }
  // Waits until the initial lists are complete, except for TrainingJobWorkers and TrainingRuntimes:
  // jobs run even if these kinds are not installed. kDeadlineExceeded.
  absl::Status AwaitSynced(pushpull::Deadline deadline) const;

 private:
  ReflectorOptions OptionsFor(const ResourceType& type, Selection selection) const;
  void StartThread(const std::string& name, std::function<void()> run);
  // Notifies every job that names this runtime.
  void TellUsers(const ObjectKey& runtime, const OnJobChange& on_change) const;

  const pushpull::Log log_;
  Cancellation stop_;
  JobStore jobs_;
  PodStore pods_;
  WorkersStore workers_;
  RuntimeStore runtimes_;
  ChildCache children_;
  Reflector job_reflector_;
  Reflector pod_reflector_;
  Reflector workers_reflector_;
  Reflector runtime_reflector_;
  std::vector<std::unique_ptr<Reflector>> child_reflectors_;  // in the order of WatchedChildren
  SecretPoll secret_poll_;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace pushpull_operator
