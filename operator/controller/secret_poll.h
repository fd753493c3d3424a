// SPDX-License-Identifier: Apache-2.0
//
// Looks up the Secrets of running jobs by name, by their metadata alone. To list or watch them the
// operator would need the right to read every Secret, which RBAC cannot limit to metadata
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
  // Between two looks at the same Secret, at least.
  std::chrono::milliseconds period{3500};
  // Between two requests: with many jobs each Secret is looked at less often.
  std::chrono::milliseconds pause{100};
};

// Whether the job has members and a Secret that the operator has made for them.
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

  // Runs until it is cancelled. A request under way is ended by KubeClient::Stop only.
  void Run(const Cancellation& cancellation);
  // One look at each; ends early when it is cancelled.
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
