// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/topology.h"

#include <algorithm>
#include <utility>

namespace pushpull {
namespace {

Machine FirstGpus(const Machine& machine, int gpus) {
  Machine part = machine;
  part.gpus = gpus;
  const auto is_left_out = [gpus](int gpu) { return gpu >= gpus; };
  if (part.pcie) {
    for (PcieSwitch& each : part.pcie->switches) std::erase_if(each.gpus, is_left_out);
    std::erase_if(part.pcie->switches, [](const PcieSwitch& each) { return each.gpus.empty(); });
  }
  if (part.nvlink) {
    std::erase_if(part.nvlink->pairs, [&](const NvLinkPair& pair) {
      return is_left_out(pair.first) || is_left_out(pair.second);
    });
  }
  return part;
}

}  // namespace

int NumWorkerMachines(const Topology& topology) {
  int machines = 0;
  for (const Rack& rack : topology.cluster.racks) machines += rack.workers;
  return machines;
}

int NumServerMachines(const Topology& topology) {
  int machines = 0;
  for (const Rack& rack : topology.cluster.racks) machines += rack.servers;
  return machines;
}

int NumWorkers(const Topology& topology) {
  return NumWorkerMachines(topology) * std::max(topology.machine.gpus, 1);
}

double NicBandwidth(const Machine& machine) {
  double bandwidth = 0;
  for (const Nic& nic : machine.nics) bandwidth += nic.bandwidth * nic.count;
  return bandwidth;
}

Topology PartWith(const Topology& topology, int workers) {
  Topology part = topology;
  const int gpus = std::max(topology.machine.gpus, 1);
  if (gpus > 1 && workers <= gpus) {
    part.machine = FirstGpus(topology.machine, workers);
    part.cluster.racks = {Rack{}};
    return part;
  }
  int machines = workers / gpus;
  for (Rack& rack : part.cluster.racks) {
    rack.workers = std::min(rack.workers, machines);
    machines -= rack.workers;
  }
  return part;
}

}  // namespace pushpull
