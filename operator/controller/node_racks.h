// SPDX-License-Identifier: Apache-2.0
//
// The racks of nodes: the values of the label that spec.workers.topologyKey names. The downward API
// gives a pod no labels of its node, and nodes are read one by one when the first pod of such a job
// is there: jobs without the field cost nothing, and no watch of all nodes is needed.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "operator/api/wall_time.h"
#include "operator/controller/observed_job.h"
#include "operator/kube/client.h"
#include "runtime/base/mutex.h"

namespace pushpull_operator {

// Thread-safe.
class NodeRacks {
 public:
  // A node that is replaced by another of its name, or gets its label late, is read again.
  static constexpr std::chrono::minutes kKeptFor{10};
  // Likewise, but without the label.
  static constexpr std::chrono::seconds kUnlabelledFor{30};

  // The client must outlive this object.
  explicit NodeRacks(KubeClient& client) : client_(client) {}

  // Adds the rack of each node that a pod of the job is on, where the node has one; nothing where
  // the job does not ask for racks. Blocks on the API server. After an error the others are there:
  //
  //   kPermissionDenied  the operator may not read nodes
  absl::Status Read(const ObservedJob& job, std::map<std::string, std::string>& racks)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Known {
    std::string rack;  // empty: the node has no such label, or is gone
    WallTime until{};
  };
  using NodeAndLabel = std::pair<std::string, std::string>;

  absl::StatusOr<std::string> RackOf(const NodeAndLabel& key, WallTime now)
      ABSL_LOCKS_EXCLUDED(mu_);

  KubeClient& client_;
  pushpull::Mutex mu_;
  std::map<NodeAndLabel, Known> known_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
