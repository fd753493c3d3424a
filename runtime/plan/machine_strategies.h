// SPDX-License-Identifier: Apache-2.0
//
// How the GPUs of one machine can sum their gradients. n is the number of GPUs, S the bytes of one
// gradient, B the bandwidth of a link in each direction. [D2L] is Zhang, Lipton, Li, Smola, "Dive
// into Deep Learning", chapter Computational Performance, section Parameter Servers.
#pragma once

#include <vector>

#include "runtime/plan/network.h"
#include "runtime/plan/strategy.h"

namespace pushpull {

// All send to GPU 0, which sends the sum to all: 2 (n - 1) S / B. [D2L]: 60 ms for 160 MB, four
// GPUs and 16 GB/s.
Schedule RootSchedule(const MachineNetwork& network, double bytes);

// All send to the host over its uplink, and back: 2 n S / B. [D2L]: 80 ms.
Schedule HostSchedule(const MachineNetwork& network, double bytes);

// Each GPU sums one n-th of the gradient for all: 2 (n - 1) / n S / B. [D2L]: 15 ms.
Schedule SplitSchedule(const MachineNetwork& network, double bytes);

// Parts of one n-th travel around a ring, twice: 2 (n - 1) / n S / B, which no algorithm beats
// where each member has one link: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for
// clusters of workstations", J. Parallel and Distributed Computing 69 (2009).
Schedule RingSchedule(const MachineNetwork& network, double bytes);

// Two binary trees, half of the gradient in each: 2 S / B, with 2 log2 n hops instead of the ring's
// 2 (n - 1). Sanders, Speck, Traeff 2009 (double_tree.h).
Schedule TreeSchedule(const MachineNetwork& network, double bytes);

// All schedules for this machine, which must have at least two GPUs; also several rings of NVLinks
// at the same time, with w parallel links in total: 2 (n - 1) / n S / (w B). [D2L] assumes a large
// n: 2 S / (w B), 5.9 ms for 160 MB over eight V100 with w = 3 of 18 GB/s. Using both directions of
// each link at the same time takes half as long.
std::vector<Schedule> MachineSchedules(const MachineNetwork& network, double bytes);

}  // namespace pushpull
