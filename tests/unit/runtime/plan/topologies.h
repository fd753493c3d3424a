// SPDX-License-Identifier: Apache-2.0
//
// Topologies that several tests plan on.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/plan/strategy.h"
#include "runtime/plan/topology.h"

namespace pushpull {

inline constexpr double kGradient = 160e6;

// GPUs below one switch of 16 GB/s.
Machine PcieMachine(int gpus);
// The double and single links of a DGX-1, 18 GB/s each.
Machine CubeMesh();
// Machines of one GPU-less worker each, with 12.5 GB/s.
Topology CpuCluster(int workers, int servers);
// The file of this name in runtime/examples/topologies, without problems.
Topology Example(const std::string& name);
// All strategies; the one of a name, which must be there.
std::vector<Strategy> StrategiesOf(const Topology& topology, double bytes = kGradient);
Strategy Named(absl::string_view name, const Topology& topology, double bytes = kGradient);

}  // namespace pushpull
