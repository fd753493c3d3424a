// SPDX-License-Identifier: Apache-2.0
//
// The racks of nodes: the values of the label that spec.workers.topologyKey names. The downward API
// gives a pod no labels of its node. Nodes are read one by one once they have a pod of such a job:
// jobs without the field cost nothing, and no watch of all nodes is needed.
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
  // After this time a node is read again: another one may have its name, or its label was changed.
  static constexpr std::chrono::minutes kKeptFor{10};
  // Likewise for a node without the label, which may get it late.
  static constexpr std::chrono::seconds kUnlabelledFor{30};

  // The client must outlive this object.
  explicit NodeRacks(KubeClient& client) : client_(client) {}

  // Adds the rack of each node that a pod of the job is on, if the node has one; nothing if the job
  // does not ask for racks. Blocks on the API server. After an error, the other racks are there:
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
