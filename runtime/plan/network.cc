// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/network.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/plan/quantity.h"

namespace pushpull {
namespace {

constexpr size_t kNone = std::numeric_limits<size_t>::max();

constexpr std::array<absl::string_view, kLinkKindCount> kKeys = {
    "pcie_gpu", "pcie_uplink", "numa", "nvlink", "worker_nic", "server_nic", "rack_uplink"};
constexpr std::array<absl::string_view, kLinkKindCount> kTitles = {"PCIe of a GPU",
                                                                   "uplink of a PCIe switch",
                                                                   "link between NUMA nodes",
                                                                   "NVLink",
                                                                   "NIC of a worker's machine",
                                                                   "NIC of a server",
                                                                   "uplink of a rack"};

}  // namespace

absl::string_view KeyOf(LinkKind kind) {
  return kKeys[static_cast<size_t>(kind)];
}
absl::string_view TitleOf(LinkKind kind) {
  return kTitles[static_cast<size_t>(kind)];
}

MachineNetwork::MachineNetwork(const Machine& machine) : machine_(machine) {
  if (machine_.pcie) AddPcie(*machine_.pcie);
  if (machine_.nvlink) AddNvLinks(*machine_.nvlink);
}

size_t MachineNetwork::AddCable(LinkKind kind, std::string name, double bandwidth, int depth) {
  cables_.push_back(Cable{kind, std::move(name), bandwidth, depth});
  return cables_.size() - 1;
}

void MachineNetwork::AddPcie(const PcieLinks& pcie) {
  for (const PcieSwitch& each : pcie.switches) numa_nodes_.push_back(each.numa_node);
  std::ranges::sort(numa_nodes_);
  numa_nodes_.erase(std::unique(numa_nodes_.begin(), numa_nodes_.end()), numa_nodes_.end());
  if (pcie.between_numa_nodes > 0 && numa_nodes_.size() > 1) {
    for (const int node : numa_nodes_) {
      numa_cable_.push_back(
          AddCable(LinkKind::kNuma, absl::StrCat("NUMA node ", node), pcie.between_numa_nodes, 0));
    }
  }
  gpu_cable_.resize(static_cast<size_t>(machine_.gpus), kNone);
  switch_of_.resize(static_cast<size_t>(machine_.gpus), 0);
  for (size_t i = 0; i < pcie.switches.size(); ++i) {
    const PcieSwitch& each = pcie.switches[i];
    switch_cable_.push_back(
        AddCable(LinkKind::kPcieUplink, absl::StrCat("PCIe switch ", i), each.uplink, 0));
    for (const int gpu : each.gpus) {
      gpu_cable_[static_cast<size_t>(gpu)] =
          AddCable(LinkKind::kPcieGpu, absl::StrCat("GPU ", gpu), pcie.bandwidth, 1);
      switch_of_[static_cast<size_t>(gpu)] = i;
    }
  }
}

void MachineNetwork::AddNvLinks(const NvLinks& nvlink) {
  const auto num_gpus = static_cast<size_t>(machine_.gpus);
  if (nvlink.links_to_switch > 0) {
    for (size_t gpu = 0; gpu < num_gpus; ++gpu) {
      nvswitch_cable_.push_back(AddCable(LinkKind::kNvLink,
                                         absl::StrCat("GPU ", gpu, " - NVSwitch"),
                                         nvlink.bandwidth * nvlink.links_to_switch,
                                         0));
    }
    return;
  }
  pair_cable_.assign(num_gpus, std::vector<size_t>(num_gpus, kNone));
  for (const NvLinkPair& pair : nvlink.pairs) {
    const size_t cable = AddCable(LinkKind::kNvLink,
                                  absl::StrCat("GPU ", pair.first, " - GPU ", pair.second),
                                  nvlink.bandwidth * pair.count,
                                  0);
    pair_cable_[static_cast<size_t>(pair.first)][static_cast<size_t>(pair.second)] = cable;
    pair_cable_[static_cast<size_t>(pair.second)][static_cast<size_t>(pair.first)] = cable;
  }
}

int MachineNetwork::NumLinks(int first, int second) const {
  if (!machine_.nvlink) return 0;
  for (const NvLinkPair& pair : machine_.nvlink->pairs) {
    if (pair.first == std::min(first, second) && pair.second == std::max(first, second))
      return pair.count;
  }
  return 0;
}

double MachineNetwork::Latency(int from, int to) const {
  const bool is_nvlink = !nvswitch_cable_.empty() || NumLinks(from, to) > 0;
  return is_nvlink ? machine_.nvlink->latency : machine_.pcie->latency;
}

void MachineNetwork::SendAcross(int from_node, int to_node, double bytes, Phase& phase) const {
  if (from_node == to_node || numa_cable_.empty()) return;
  const auto cable_of = [&](int node) {
    const auto found = std::ranges::lower_bound(numa_nodes_, node);
    return numa_cable_[static_cast<size_t>(found - numa_nodes_.begin())];
  };
  phase.bytes[Out(cable_of(from_node))] += bytes;
  phase.bytes[In(cable_of(to_node))] += bytes;
}

void MachineNetwork::Send(int from, int to, double bytes, Phase& phase) const {
  const auto first = static_cast<size_t>(from);
  const auto second = static_cast<size_t>(to);
  if (!nvswitch_cable_.empty()) {
    phase.bytes[Out(nvswitch_cable_[first])] += bytes;
    phase.bytes[In(nvswitch_cable_[second])] += bytes;
    return;
  }
  if (!pair_cable_.empty() && pair_cable_[first][second] != kNone) {
    const size_t cable = pair_cable_[first][second];
    phase.bytes[from < to ? Out(cable) : In(cable)] += bytes;
    return;
  }
  phase.bytes[Out(gpu_cable_[first])] += bytes;
  if (SwitchOf(from) != SwitchOf(to)) {
    phase.bytes[Out(switch_cable_[SwitchOf(from)])] += bytes;
    SendAcross(NodeOf(from), NodeOf(to), bytes, phase);
    phase.bytes[In(switch_cable_[SwitchOf(to)])] += bytes;
  }
  phase.bytes[In(gpu_cable_[second])] += bytes;
}

void MachineNetwork::SendToHost(int gpu, double bytes, Phase& phase) const {
  phase.bytes[Out(gpu_cable_[static_cast<size_t>(gpu)])] += bytes;
  phase.bytes[Out(switch_cable_[SwitchOf(gpu)])] += bytes;
  SendAcross(NodeOf(gpu), numa_nodes_.front(), bytes, phase);
}

void MachineNetwork::SendFromHost(int gpu, double bytes, Phase& phase) const {
  SendAcross(numa_nodes_.front(), NodeOf(gpu), bytes, phase);
  phase.bytes[In(switch_cable_[SwitchOf(gpu)])] += bytes;
  phase.bytes[In(gpu_cable_[static_cast<size_t>(gpu)])] += bytes;
}

}  // namespace pushpull
