// SPDX-License-Identifier: Apache-2.0
//
// How workers on several machines can sum their gradients. m is the number of worker machines, n
// the number of servers, g the number of GPUs in a machine, S the bytes of one gradient, B the
// bandwidth of a machine's NICs in each direction.
//
//   servers       every GPU pushes to n servers:               2 g m / n S / B, at least 2 g S / B
//   hierarchical  the GPUs of a machine sum first:             2 m / n S / B,   at least 2 S / B
//   colocated     likewise, a server on each worker's machine: 2 (m - 1) / m S / B
//   machine_ring  likewise, a ring over the machines:          2 (m - 1) / m S / B
//   rack_ring     likewise, in each rack, then over racks:     2 (m - 1) / m S / B
//   machine_tree  likewise, two binary trees over them:        2 S / B
//   machine_root  likewise, the first machine sums:            2 (m - 1) S / B
//
// O(m / n) and the hierarchy: [D2L] of machine_strategies.h, and Jiang et al., "A unified
// architecture for accelerating distributed DNN training in heterogeneous GPU/CPU clusters", OSDI
// 2020. Ring and trees as there.
#pragma once

#include <vector>

#include "runtime/plan/network.h"
#include "runtime/plan/strategy.h"
#include "runtime/plan/topology.h"

namespace pushpull {

// The links of one worker's machine, then for each rack its uplink, the NICs of one of its worker
// machines, and those of one of its servers. All machines of a kind in a rack carry the same load.
struct ClusterNetwork {
  struct RackCables {
    size_t uplink;  // SIZE_MAX: there is none, likewise below
    size_t worker;
    size_t server;
  };
  std::vector<Cable> cables;
  size_t machine_cables = 0;
  std::vector<RackCables> racks;
};
ClusterNetwork NetworkOf(const Topology& topology, const MachineNetwork& machine);

// `in_machine`: what the GPUs of one machine can do (MachineSchedules); empty with fewer than two.
// Each strategy uses the way to sum in a machine with which it takes the least time.
std::vector<Strategy> ClusterStrategies(const Topology& topology,
                                        const ClusterNetwork& network,
                                        const MachineNetwork& machine,
                                        const std::vector<Schedule>& in_machine,
                                        double bytes);

}  // namespace pushpull
