// SPDX-License-Identifier: Apache-2.0
//
// The hardware that `pushpull plan` predicts for: machines of one kind with GPUs and their links,
// and the network between them. Bandwidths are bytes per second in each direction of a link,
// latencies seconds. parse_topology.h reads the file, docs/planning.md describes it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pushpull {

inline constexpr char kTopologyKind[] = "Topology";
inline constexpr int kMachineGpusMax = 64;
inline constexpr int kClusterWorkersMax = 4096;  // the bounds of spec.workers and spec.servers
inline constexpr int kClusterServersMax = 1024;

struct PcieSwitch {
  std::vector<int> gpus;
  double uplink = 0;  // to the host; all its GPUs share it
  int numa_node = 0;
  friend bool operator==(const PcieSwitch&, const PcieSwitch&) = default;
};

struct PcieLinks {
  double bandwidth = 0;  // of the link of each GPU
  double latency = 0;
  std::vector<PcieSwitch> switches;  // each GPU is below exactly one switch
  double between_numa_nodes = 0;     // 0: no limit
  friend bool operator==(const PcieLinks&, const PcieLinks&) = default;
};

struct NvLinkPair {
  int first = 0;
  int second = 0;
  int count = 1;  // links between the two
  friend bool operator==(const NvLinkPair&, const NvLinkPair&) = default;
};

// Either pairs, or all GPUs on non-blocking switches.
struct NvLinks {
  double bandwidth = 0;  // of one link
  double latency = 0;
  std::vector<NvLinkPair> pairs;
  int links_to_switch = 0;  // of each GPU; 0: no switch
  friend bool operator==(const NvLinks&, const NvLinks&) = default;
};

struct Nic {
  double bandwidth = 0;
  int count = 1;
  friend bool operator==(const Nic&, const Nic&) = default;
};

struct Machine {
  int gpus = 0;                   // 0: its worker computes on the CPU
  std::optional<PcieLinks> pcie;  // set if there is a GPU
  std::optional<NvLinks> nvlink;
  std::vector<Nic> nics;
  friend bool operator==(const Machine&, const Machine&) = default;
};

struct Rack {
  int workers = 1;    // machines with workers
  int servers = 0;    // machines that each have one server and nothing else
  double uplink = 0;  // of the whole rack; 0: no limit
  friend bool operator==(const Rack&, const Rack&) = default;
};

struct Cluster {
  std::vector<Rack> racks = {Rack{}};
  double server_bandwidth = 0;  // of a server's machine; 0: like a worker's
  double latency = 0;           // from one machine to another
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

struct Topology {
  std::string name;
  Machine machine;
  Cluster cluster;
  friend bool operator==(const Topology&, const Topology&) = default;
};

// The number of machines with workers, and of those with servers.
int NumWorkerMachines(const Topology& topology);
int NumServerMachines(const Topology& topology);
// The number of gradients: one for each GPU, or for each machine without GPUs.
int NumWorkers(const Topology& topology);
// Total bandwidth of a machine's NICs.
double NicBandwidth(const Machine& machine);
// The part of the topology that `workers` workers use: GPUs of one machine, or whole machines, rack
// by rack. `workers` is at most the number of GPUs in a machine, or a multiple of it.
Topology PartWith(const Topology& topology, int workers);

}  // namespace pushpull
