// SPDX-License-Identifier: Apache-2.0
//
// The links of a machine, or of one machine of each kind and the network between them, and what a
// strategy sends over each. A cable has two directions that do not slow each other down; concurrent
// traffic in one direction shares its bandwidth. Nothing else takes time except a latency for each
// hop, if the topology has one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/plan/topology.h"

namespace pushpull {

enum class LinkKind { kPcieGpu, kPcieUplink, kNuma, kNvLink, kWorkerNic, kServerNic, kRackUplink };
inline constexpr size_t kLinkKindCount = 7;

// "pcie_gpu", for programs; "PCIe of a GPU", for people.
absl::string_view KeyOf(LinkKind kind);
absl::string_view TitleOf(LinkKind kind);

struct Cable {
  LinkKind kind;
  std::string name;
  double bandwidth;  // of each direction, bytes per second
  int depth = 0;     // indentation in a drawing
};

// One direction of cable c: 2 c is "out", towards the root of a tree or from the GPU with the lower
// number to the other; 2 c + 1 is "in", the other way.
using Direction = size_t;
inline Direction Out(size_t cable) {
  return 2 * cable;
}
inline Direction In(size_t cable) {
  return 2 * cable + 1;
}

// What is sent at the same time, between two barriers.
struct Phase {
  std::vector<double> bytes;  // by direction
  double latency = 0;         // of all its consecutive hops, seconds
};

// The links of one machine. Copyable. Thread-compatible.
class MachineNetwork {
 public:
  explicit MachineNetwork(const Machine& machine);

  int gpus() const { return machine_.gpus; }
  const Machine& machine() const { return machine_; }
  const std::vector<Cable>& cables() const { return cables_; }
  Phase NewPhase() const { return Phase{std::vector<double>(2 * cables_.size(), 0.0)}; }

  // Adds bytes that go from one GPU to another: over NVLink if it connects both, else over PCIe.
  void Send(int from, int to, double bytes, Phase& phase) const;
  // The same over PCIe to the host's memory, or from it. A host's sum is in its first NUMA node.
  void SendToHost(int gpu, double bytes, Phase& phase) const;
  void SendFromHost(int gpu, double bytes, Phase& phase) const;
  // Direct links between two GPUs; 0: none.
  int NumLinks(int first, int second) const;
  // Latency of a message from one GPU to another, and from a GPU to the host.
  double Latency(int from, int to) const;
  double HostLatency() const { return machine_.pcie ? machine_.pcie->latency : 0; }

 private:
  size_t AddCable(LinkKind kind, std::string name, double bandwidth, int depth);
  void AddPcie(const PcieLinks& pcie);
  void AddNvLinks(const NvLinks& nvlink);
  // Adds bytes between the memory of two NUMA nodes.
  void SendAcross(int from_node, int to_node, double bytes, Phase& phase) const;
  size_t SwitchOf(int gpu) const { return switch_of_[static_cast<size_t>(gpu)]; }
  int NodeOf(int gpu) const { return machine_.pcie->switches[SwitchOf(gpu)].numa_node; }

  const Machine machine_;
  std::vector<Cable> cables_;
  std::vector<size_t> gpu_cable_;                // by GPU: its PCIe
  std::vector<size_t> switch_cable_;             // by switch
  std::vector<size_t> switch_of_;                // by GPU
  std::vector<size_t> nvswitch_cable_;           // by GPU, if there are switches
  std::vector<std::vector<size_t>> pair_cable_;  // [a][b]: of direct links, kNone: none
  std::vector<int> numa_nodes_;                  // with a GPU, ascending
  std::vector<size_t> numa_cable_;               // by position in numa_nodes_
};

}  // namespace pushpull
