// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/cluster_strategies.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/job/training_job.h"
#include "runtime/plan/double_tree.h"
#include "runtime/plan/quantity.h"

namespace pushpull {
namespace {

void Add(size_t cable, double out, double in, Phase& phase) {
  if (cable == SIZE_MAX) return;
  phase.bytes[Out(cable)] += out;
  phase.bytes[In(cable)] += in;
}

// Computes what machines send each other; m, n, g and S as in the header.
class ClusterPlanner {
 public:
  ClusterPlanner(const Topology& topology,
                 const ClusterNetwork& network,
                 const MachineNetwork& machine,
                 double bytes)
      : topology_(topology),
        network_(network),
        machine_(machine),
        bytes_(bytes),
        workers_(NumWorkerMachines(topology)),
        servers_(NumServerMachines(topology)) {}

  std::vector<Strategy> All(const std::vector<Schedule>& in_machine) const {
    std::vector<Strategy> strategies;
    if (servers_ > 0) strategies.push_back(Evaluate(Servers(), network_.cables));
    const auto add = [&](const Schedule& between) {
      strategies.push_back(WithMachines(between, in_machine));
    };
    if (servers_ > 0 && machine_.gpus() > 1) add(Hierarchical());
    if (workers_ == 1) return strategies;
    for (const Schedule& each : {Colocated(), Ring(), Tree(), Root()}) add(each);
    if (const std::optional<Schedule> racks = RackRing()) add(*racks);
    return strategies;
  }

 private:
  Phase NewPhase() const {
    Phase phase{std::vector<double>(2 * network_.cables.size(), 0.0)};
    phase.latency = topology_.cluster.latency;
    return phase;
  }

  const Rack& RackAt(size_t i) const { return topology_.cluster.racks[i]; }
  size_t NumRacks() const { return topology_.cluster.racks.size(); }

  // Each machine sends `copies` gradients, the n-th part of each to each server.
  Phase ToServers(double copies) const {
    Phase phase = NewPhase();
    const double sent = copies * bytes_;
    for (size_t i = 0; i < NumRacks(); ++i) {
      const Rack& rack = RackAt(i);
      const double own = static_cast<double>(rack.servers) / servers_;
      Add(network_.racks[i].worker, sent, 0, phase);
      Add(network_.racks[i].server, 0, sent * workers_ / servers_, phase);
      Add(network_.racks[i].uplink,
          rack.workers * sent * (1 - own),
          (workers_ - rack.workers) * sent * own,
          phase);
    }
    return phase;
  }

  std::string ToEachServer(double copies) const {
    return absl::StrCat(workers_,
                        " machines -> each of ",
                        servers_,
                        " servers: ",
                        FormatBytes(copies * bytes_ / servers_),
                        " each, then the same way back");
  }

  Schedule Servers() const {
    const int copies = std::max(machine_.gpus(), 1);
    Schedule schedule{.name = "servers",
                      .title = absl::StrCat(workers_ * copies, " workers, ", servers_, " servers"),
                      .formula = machine_.gpus() > 1 ? "2 g m / n S / B" : "2 m / n S / B",
                      .source = kServersSource,
                      .runner = Runner::kServers};
    Phase there = ToServers(copies);
    for (int gpu = 0; gpu < machine_.gpus(); ++gpu) machine_.SendToHost(gpu, bytes_, there);
    there.latency += machine_.HostLatency();
    schedule.phases = BothWays(there);
    schedule.flows = {ToEachServer(copies)};
    return schedule;
  }

  Schedule Hierarchical() const {
    Schedule schedule{.name = "hierarchical",
                      .title = absl::StrCat(workers_, " machines sum, then ", servers_, " servers"),
                      .formula = "2 m / n S / B",
                      .source = kHierarchySource,
                      .runner = Runner::kServers};
    schedule.phases = BothWays(ToServers(1));
    schedule.flows = {ToEachServer(1)};
    return schedule;
  }

  Schedule Colocated() const {
    Schedule schedule{.name = "colocated",
                      .title = "a server on each worker's machine",
                      .formula = "2 (m - 1) / m S / B",
                      .source = kHierarchySource,
                      .runner = Runner::kServers};
    Phase there = NewPhase();
    const double part = bytes_ / workers_;
    for (size_t i = 0; i < NumRacks(); ++i) {
      const int inside = RackAt(i).workers;
      const double across = part * inside * (workers_ - inside);
      Add(network_.racks[i].worker, part * (workers_ - 1), part * (workers_ - 1), there);
      Add(network_.racks[i].uplink, across, across, there);
    }
    schedule.phases = BothWays(there);
    schedule.flows = {absl::StrCat("each machine -> each other one: ",
                                   FormatBytes(part),
                                   ", its part, then the same way back")};
    return schedule;
  }

  // Jobs have rings on CPUs only.
  Runner RingRunner() const {
    const bool runs = topology_.machine.gpus == 0 && workers_ <= kRingWorkersMax;
    return runs ? Runner::kWorkers : Runner::kPlanned;
  }

  Schedule Ring() const {
    Schedule schedule{.name = "machine_ring",
                      .title = "a ring over the machines",
                      .formula = "2 (m - 1) / m S / B",
                      .source = kRingSource,
                      .runner = RingRunner()};
    Phase there = NewPhase();
    const double sent = bytes_ / workers_ * (workers_ - 1);
    for (size_t i = 0; i < NumRacks(); ++i) {
      Add(network_.racks[i].worker, sent, sent, there);
      // The ring enters and leaves each rack once.
      const int inside = RackAt(i).workers;
      if (inside > 0 && inside < workers_) Add(network_.racks[i].uplink, sent, sent, there);
    }
    there.latency *= workers_ - 1;
    schedule.phases = {there, there};
    schedule.flows = {absl::StrCat("machine 0 -> 1 -> ... -> ",
                                   workers_ - 1,
                                   " -> 0: ",
                                   FormatBytes(2 * sent),
                                   " over each step of the ring")};
    return schedule;
  }

  // Each of the k machines of a rack sums one k-th of the gradients of its rack, then of all racks
  // with its counterparts there. Only for racks with equally many machines: otherwise one machine
  // of each rack carries everything.
  std::optional<Schedule> RackRing() const {
    std::vector<int> racks;
    for (const Rack& rack : topology_.cluster.racks) {
      if (rack.workers > 0) racks.push_back(rack.workers);
    }
    const int num_racks = static_cast<int>(racks.size());
    const int machines = racks.front();
    const bool are_equal = std::ranges::count(racks, machines) == num_racks;
    if (num_racks < 2 || machines < 2 || !are_equal) return std::nullopt;
    Phase inside = NewPhase();
    Phase across = NewPhase();
    const double part = bytes_ / machines;
    const double crossing = part / num_racks * (num_racks - 1);
    for (size_t i = 0; i < NumRacks(); ++i) {
      if (RackAt(i).workers == 0) continue;
      Add(network_.racks[i].worker, part * (machines - 1), part * (machines - 1), inside);
      Add(network_.racks[i].worker, crossing, crossing, across);
      Add(network_.racks[i].uplink, machines * crossing, machines * crossing, across);
    }
    inside.latency *= machines - 1;
    across.latency *= num_racks - 1;
    return Schedule{.name = "rack_ring",
                    .title = "a ring in each rack, then over the racks",
                    .formula = "2 (m - 1) / m S / B",
                    .source = kRingSource,
                    .runner = RingRunner(),
                    .phases = {inside, across, across, inside},
                    .flows = {absl::StrCat("each machine -> the next of its rack: ",
                                           FormatBytes(2 * part * (machines - 1))),
                              absl::StrCat("each machine -> its counterpart in the next rack: ",
                                           FormatBytes(2 * crossing),
                                           ", its part")}};
  }

  // The rack of each worker's machine.
  std::vector<size_t> RacksOfWorkers() const {
    std::vector<size_t> racks;
    for (size_t i = 0; i < NumRacks(); ++i)
      racks.insert(racks.end(), static_cast<size_t>(RackAt(i).workers), i);
    return racks;
  }

  Schedule Tree() const {
    Schedule schedule{.name = "machine_tree",
                      .title = "two binary trees over the machines",
                      .formula = "2 S / B",
                      .source = kTreeSource,
                      .runner = Runner::kPlanned};
    Phase there = NewPhase();
    int depth = 0;
    const std::vector<size_t> racks = RacksOfWorkers();
    std::vector<double> out(racks.size(), 0.0);
    std::vector<double> in(racks.size(), 0.0);
    for (const std::vector<int>& parents : DoubleTree(workers_)) {
      depth = std::max(depth, TreeDepth(parents));
      for (size_t child = 0; child < parents.size(); ++child) {
        if (parents[child] < 0) continue;
        const auto parent = static_cast<size_t>(parents[child]);
        out[child] += bytes_ / 2;
        in[parent] += bytes_ / 2;
        if (racks[child] == racks[parent]) continue;
        Add(network_.racks[racks[child]].uplink, bytes_ / 2, 0, there);
        Add(network_.racks[racks[parent]].uplink, 0, bytes_ / 2, there);
      }
    }
    // The machine that represents a rack is its busiest one.
    for (size_t i = 0; i < racks.size(); ++i) {
      const size_t cable = network_.racks[racks[i]].worker;
      there.bytes[Out(cable)] = std::max(there.bytes[Out(cable)], out[i]);
      there.bytes[In(cable)] = std::max(there.bytes[In(cable)], in[i]);
    }
    there.latency *= depth;
    schedule.phases = BothWays(there);
    schedule.flows = {absl::StrCat("each machine -> its parent in two trees: ",
                                   FormatBytes(bytes_ / 2),
                                   " each, then the same way back")};
    return schedule;
  }

  Schedule Root() const {
    Schedule schedule{.name = "machine_root",
                      .title = "the first machine sums",
                      .formula = "2 (m - 1) S / B",
                      .source = kServersSource,
                      .runner = Runner::kPlanned};
    Phase there = NewPhase();
    const size_t root = RacksOfWorkers().front();
    for (size_t i = 0; i < NumRacks(); ++i) {
      const int inside = RackAt(i).workers;
      if (i == root) {
        Add(network_.racks[i].worker, 0, (workers_ - 1) * bytes_, there);
        Add(network_.racks[i].uplink, 0, (workers_ - inside) * bytes_, there);
      } else if (inside > 0) {
        Add(network_.racks[i].worker, bytes_, 0, there);
        Add(network_.racks[i].uplink, inside * bytes_, 0, there);
      }
    }
    schedule.phases = BothWays(there);
    schedule.flows = {absl::StrCat("machine 1 to ",
                                   workers_ - 1,
                                   " -> machine 0: ",
                                   FormatBytes(bytes_),
                                   " each, then the same way back")};
    return schedule;
  }

  // The GPUs of a machine sum as `inside` does, push from where that leaves the sum, and get the
  // result back the same way.
  Schedule Combined(const Schedule& between, const Schedule& inside) const {
    Schedule schedule = between;
    schedule.runner = between.runner == Runner::kServers ? Runner::kProgram : between.runner;
    Phase& there = schedule.phases.front();
    Phase& back = schedule.phases.back();
    if (inside.is_in_parts) {
      for (int gpu = 0; gpu < machine_.gpus(); ++gpu) {
        machine_.SendToHost(gpu, bytes_ / machine_.gpus(), there);
        machine_.SendFromHost(gpu, bytes_ / machine_.gpus(), back);
      }
      there.latency += machine_.HostLatency();
      back.latency += machine_.HostLatency();
    }
    Phase sum = inside.phases.front();
    Phase spread = inside.phases.back();
    sum.bytes.resize(2 * network_.cables.size(), 0.0);
    spread.bytes.resize(2 * network_.cables.size(), 0.0);
    schedule.phases.insert(schedule.phases.begin(), std::move(sum));
    schedule.phases.push_back(std::move(spread));
    schedule.title = absl::StrCat(between.title, "; in a machine: ", inside.name);
    std::vector<std::string> flows = inside.flows;
    flows.insert(flows.end(), between.flows.begin(), between.flows.end());
    schedule.flows = std::move(flows);
    return schedule;
  }

  // For machines with at most one GPU: there is nothing to sum inside.
  Schedule Alone(const Schedule& between) const {
    Schedule schedule = between;
    if (machine_.gpus() == 0) return schedule;
    machine_.SendToHost(0, bytes_, schedule.phases.front());
    machine_.SendFromHost(0, bytes_, schedule.phases.back());
    schedule.phases.front().latency += machine_.HostLatency();
    schedule.phases.back().latency += machine_.HostLatency();
    return schedule;
  }

  Strategy WithMachines(const Schedule& between, const std::vector<Schedule>& in_machine) const {
    std::optional<Strategy> best;
    for (const Schedule& inside : in_machine) {
      // Skipped: a sum that is in a single GPU would have to pass through that GPU's link.
      if (!inside.is_in_parts && inside.name != "host") continue;
      Strategy strategy = Evaluate(Combined(between, inside), network_.cables);
      const bool is_better =
          !best || strategy.streamed_seconds < best->streamed_seconds ||
          (strategy.streamed_seconds == best->streamed_seconds && strategy.seconds < best->seconds);
      if (is_better) best = std::move(strategy);
    }
    return best ? std::move(*best) : Evaluate(Alone(between), network_.cables);
  }

  const Topology& topology_;
  const ClusterNetwork& network_;
  const MachineNetwork& machine_;
  const double bytes_;
  const int workers_;
  const int servers_;
};

}  // namespace

ClusterNetwork NetworkOf(const Topology& topology, const MachineNetwork& machine) {
  ClusterNetwork network{.cables = machine.cables(), .machine_cables = machine.cables().size()};
  const Cluster& cluster = topology.cluster;
  const double nic = NicBandwidth(topology.machine);
  if (NumWorkerMachines(topology) + NumServerMachines(topology) < 2) return network;
  const auto add = [&](LinkKind kind, std::string name, double bandwidth, int depth) {
    network.cables.push_back(Cable{kind, std::move(name), bandwidth, depth});
    return network.cables.size() - 1;
  };
  for (size_t i = 0; i < cluster.racks.size(); ++i) {
    const Rack& rack = cluster.racks[i];
    ClusterNetwork::RackCables cables{SIZE_MAX, SIZE_MAX, SIZE_MAX};
    const int depth = rack.uplink > 0 ? 1 : 0;
    if (rack.uplink > 0)
      cables.uplink = add(LinkKind::kRackUplink, absl::StrCat("rack ", i), rack.uplink, 0);
    if (rack.workers > 0) {
      cables.worker =
          add(LinkKind::kWorkerNic, absl::StrCat("each of ", rack.workers, " workers"), nic, depth);
    }
    if (rack.servers > 0) {
      cables.server = add(LinkKind::kServerNic,
                          absl::StrCat("each of ", rack.servers, " servers"),
                          cluster.server_bandwidth > 0 ? cluster.server_bandwidth : nic,
                          depth);
    }
    network.racks.push_back(cables);
  }
  return network;
}

std::vector<Strategy> ClusterStrategies(const Topology& topology,
                                        const ClusterNetwork& network,
                                        const MachineNetwork& machine,
                                        const std::vector<Schedule>& in_machine,
                                        double bytes) {
  return ClusterPlanner(topology, network, machine, bytes).All(in_machine);
}

}  // namespace pushpull
