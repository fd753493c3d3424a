// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/machine_strategies.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "runtime/plan/double_tree.h"
#include "runtime/plan/nvlink_rings.h"
#include "runtime/plan/quantity.h"

namespace pushpull {
namespace {

constexpr char kBack[] = "then the same way back";

double LatencyMax(const MachineNetwork& network) {
  double latency = 0;
  for (int gpu = 1; gpu < network.gpus(); ++gpu)
    latency = std::max({latency, network.Latency(0, gpu), network.Latency(gpu - 1, gpu)});
  return latency;
}

// GPUs in the order of their switches, so that a ring enters each switch once.
Ring RingBySwitch(const MachineNetwork& network) {
  Ring ring{.order = {}, .width = 1};
  for (const PcieSwitch& each : network.machine().pcie->switches)
    ring.order.insert(ring.order.end(), each.gpus.begin(), each.gpus.end());
  return ring;
}

std::string Draw(const Ring& ring, bool is_nvlink) {
  std::string text =
      absl::StrCat("GPU ", absl::StrJoin(ring.order, " -> "), " -> ", ring.order.front());
  if (is_nvlink)
    absl::StrAppend(&text, ", ", ring.width, ring.width == 1 ? " link" : " links", " wide");
  return text;
}

int TotalWidth(const std::vector<Ring>& rings) {
  int width = 0;
  for (const Ring& ring : rings) width += ring.width;
  return width;
}

enum class Ways { kOne, kBoth };

Schedule SeveralRings(const MachineNetwork& network,
                      const std::vector<Ring>& rings,
                      double bytes,
                      Ways ways) {
  Schedule schedule{.runner = Runner::kProgram};
  const double n = network.gpus();
  const int width = TotalWidth(rings);
  Phase phase = network.NewPhase();
  for (const Ring& ring : rings) {
    const double part = bytes * ring.width / width * (n - 1) / n;
    double latency = 0;
    for (size_t i = 0; i < ring.order.size(); ++i) {
      const int from = ring.order[i];
      const int to = ring.order[(i + 1) % ring.order.size()];
      network.Send(from, to, ways == Ways::kBoth ? part / 2 : part, phase);
      if (ways == Ways::kBoth) network.Send(to, from, part / 2, phase);
      latency = std::max(latency, network.Latency(from, to));
    }
    phase.latency = std::max(phase.latency, latency * (n - 1));
    schedule.flows.push_back(
        absl::StrCat(Draw(ring, network.NumLinks(ring.order[0], ring.order[1]) > 0),
                     ": ",
                     FormatBytes(2 * part),
                     " over each step of the ring",
                     ways == Ways::kBoth ? ", half of it the other way" : ""));
  }
  // The first turn carries sums, the second results: both in the same direction.
  schedule.phases = {phase, phase};
  return schedule;
}

void AddTextbookFigures(const MachineNetwork& network,
                        const std::vector<Ring>& rings,
                        double bytes,
                        Schedule& schedule) {
  const double n = network.gpus();
  const double link = network.machine().nvlink->bandwidth;
  const int width = TotalWidth(rings);
  const double textbook = 2 * bytes / (width * link);
  const std::string text =
      absl::StrFormat("2 x %s / (%d x %s)", FormatBytes(bytes), width, FormatBandwidth(link));
  schedule.figures.push_back({text, textbook});
  schedule.figures.push_back(
      {absl::StrFormat("%s x %.0f/%.0f", text, n - 1, n), textbook * (n - 1) / n});
}

}  // namespace

Schedule RootSchedule(const MachineNetwork& network, double bytes) {
  Schedule schedule{.name = "root",
                    .title = "GPU 0 sums",
                    .formula = "2 (n - 1) S / B",
                    .source = kServersSource,
                    .runner = Runner::kProgram};
  Phase there = network.NewPhase();
  for (int gpu = 1; gpu < network.gpus(); ++gpu) {
    network.Send(gpu, 0, bytes, there);
    there.latency = std::max(there.latency, network.Latency(gpu, 0));
  }
  schedule.phases = BothWays(there);
  schedule.flows = {absl::StrCat(
      "GPU 1 to ", network.gpus() - 1, " -> GPU 0: ", FormatBytes(bytes), " each, ", kBack)};
  schedule.is_in_parts = false;
  return schedule;
}

Schedule HostSchedule(const MachineNetwork& network, double bytes) {
  Schedule schedule{.name = "host",
                    .title = "servers on the host sum",
                    .formula = "2 n S / B of the uplink",
                    .source = kServersSource,
                    .runner = Runner::kServers};
  Phase there = network.NewPhase();
  for (int gpu = 0; gpu < network.gpus(); ++gpu) network.SendToHost(gpu, bytes, there);
  there.latency = network.HostLatency();
  schedule.phases = BothWays(there);
  schedule.flows = {absl::StrCat(
      "GPU 0 to ", network.gpus() - 1, " -> host: ", FormatBytes(bytes), " each, ", kBack)};
  schedule.is_in_parts = false;
  return schedule;
}

Schedule SplitSchedule(const MachineNetwork& network, double bytes) {
  Schedule schedule{.name = "split",
                    .title = "each GPU sums a part",
                    .formula = "2 (n - 1) / n S / B",
                    .source = kServersSource,
                    .runner = Runner::kProgram};
  const double part = bytes / network.gpus();
  Phase there = network.NewPhase();
  for (int from = 0; from < network.gpus(); ++from) {
    for (int to = 0; to < network.gpus(); ++to) {
      if (from != to) network.Send(from, to, part, there);
    }
  }
  there.latency = LatencyMax(network);
  schedule.phases = BothWays(there);
  schedule.flows = {
      absl::StrCat("each GPU -> each other one: ", FormatBytes(part), ", its part, ", kBack)};
  return schedule;
}

Schedule RingSchedule(const MachineNetwork& network, double bytes) {
  const std::vector<Ring> rings = FindNvLinkRings(network.machine());
  const Ring ring = rings.empty() ? RingBySwitch(network) : rings.front();
  Schedule schedule = SeveralRings(network, {ring}, bytes, Ways::kOne);
  schedule.name = "ring";
  schedule.title = "one ring";
  schedule.formula = "2 (n - 1) / n S / B";
  schedule.source = kRingSource;
  return schedule;
}

Schedule TreeSchedule(const MachineNetwork& network, double bytes) {
  Schedule schedule{.name = "tree",
                    .title = "two binary trees",
                    .formula = "2 S / B",
                    .source = kTreeSource,
                    .runner = Runner::kProgram};
  Phase there = network.NewPhase();
  int depth = 0;
  for (const std::vector<int>& parents : DoubleTree(network.gpus())) {
    std::vector<std::string> edges;
    for (int gpu = 0; gpu < network.gpus(); ++gpu) {
      const int parent = parents[static_cast<size_t>(gpu)];
      if (parent < 0) continue;
      network.Send(gpu, parent, bytes / 2, there);
      edges.push_back(absl::StrCat(gpu, " -> ", parent));
    }
    depth = std::max(depth, TreeDepth(parents));
    schedule.flows.push_back(absl::StrCat(
        "GPU ", absl::StrJoin(edges, ", "), ": ", FormatBytes(bytes / 2), " each, ", kBack));
  }
  there.latency = depth * LatencyMax(network);
  schedule.phases = BothWays(there);
  schedule.is_in_parts = false;
  return schedule;
}

std::vector<Schedule> MachineSchedules(const MachineNetwork& network, double bytes) {
  std::vector<Schedule> schedules = {RootSchedule(network, bytes),
                                     HostSchedule(network, bytes),
                                     SplitSchedule(network, bytes),
                                     RingSchedule(network, bytes),
                                     TreeSchedule(network, bytes)};
  const std::vector<Ring> rings = FindNvLinkRings(network.machine());
  if (rings.size() > 1) {
    Schedule several = SeveralRings(network, rings, bytes, Ways::kOne);
    several.name = rings.size() == 2 ? "two_rings" : "rings";
    several.title = absl::StrCat(rings.size() == 2 ? "two" : "several", " rings of NVLinks");
    several.formula = "2 (n - 1) / n S / (w B)";
    several.source = kServersSource;
    AddTextbookFigures(network, rings, bytes, several);
    schedules.push_back(std::move(several));
  }
  // With two GPUs the ring already uses both directions.
  if (!rings.empty() && network.gpus() > 2) {
    Schedule both = SeveralRings(network, rings, bytes, Ways::kBoth);
    both.name = "rings_both_ways";
    both.title = "all rings, both ways at once";
    both.formula = "(n - 1) / n S / (w B)";
    both.source = kRingSource;
    schedules.push_back(std::move(both));
  }
  return schedules;
}

}  // namespace pushpull
