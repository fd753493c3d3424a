// SPDX-License-Identifier: Apache-2.0
//
// Looks up the Secrets of running jobs by name, metadata only. To list or watch them, the operator
// would need permission to read every Secret, which RBAC cannot limit to metadata
// (docs/decisions/0065-what-others-change.md).
#pragma once

#include <chrono>

#include "operator/controller/child_cache.h"
#include "operator/controller/observed_job.h"
#include "operator/kube/cancellation.h"
#include "operator/kube/client.h"
#include "operator/kube/pausing_time.h"

namespace pushpull_operator {

struct SecretPace {
  // Minimum time between two lookups of the same Secret.
  std::chrono::milliseconds period{3500};
  // Between two requests; with many jobs, each Secret is looked up less often.
  std::chrono::milliseconds pause{100};
};

// Whether the job has members, and a Secret that the operator created for them.
bool HasOwnSecret(const Stored<TrainingJobObject>& job);

// Thread-compatible.
class SecretPoll {
 public:
  // All must outlive the poll.
  SecretPoll(KubeClient& client,
             PausingTime& time,
             const JobStore& jobs,
             ChildCache& children,
             SecretPace pace)
      : client_(client), time_(time), jobs_(jobs), children_(children), pace_(pace) {}

  // Runs until it is cancelled. Only KubeClient::Stop ends a request in progress.
  void Run(const Cancellation& cancellation);
  // Looks up each Secret once; ends early when it is cancelled.
  void LookOnce(const Cancellation& cancellation);

 private:
  void LookUp(const Stored<TrainingJobObject>& job, const ObjectKey& secret);

  KubeClient& client_;
  PausingTime& time_;
  const JobStore& jobs_;
  ChildCache& children_;
  const SecretPace pace_;
};

}  // namespace pushpull_operator
