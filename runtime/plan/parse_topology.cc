// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/parse_topology.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "runtime/base/printable.h"
#include "runtime/job/object_reader.h"
#include "runtime/job/training_job.h"
#include "runtime/job/tree.h"
#include "runtime/job/yaml_reader.h"
#include "runtime/plan/quantity.h"

namespace pushpull {
namespace {

constexpr size_t kNameBytesMax = 200;
constexpr size_t kNicsMax = 64;
constexpr int kNvLinksMax = 64;  // of a GPU; today's have 18
constexpr IntRange kGpuIndex{0, kMachineGpusMax - 1};

// `parse`: parses the field's text; none: the text is not `what`.
void ReadQuantity(absl::string_view key,
                  std::optional<double> (&parse)(absl::string_view),
                  absl::string_view what,
                  ObjectReader& object,
                  double& out) {
  std::string text;
  if (!object.ReadString(key, text)) return;
  const std::optional<double> value = parse(text);
  if (!value) return object.Refuse(key, absl::StrCat("must be ", what, ", is ", Quoted(text)));
  out = *value;
}

void ReadBandwidth(absl::string_view key, ObjectReader& object, double& out) {
  ReadQuantity(key, ParseBandwidth, "a rate such as 16GB/s (bytes) or 100Gb/s (bits)", object, out);
}

void ReadLatency(absl::string_view key, ObjectReader& object, double& out) {
  ReadQuantity(key, ParseLatency, "a time of at most 1s such as 5us or 1.5ms", object, out);
}

// Reports GPUs in `gpus` that do not exist.
void CheckGpus(const std::vector<int>& gpus,
               int num_gpus,
               absl::string_view key,
               ObjectReader& object) {
  for (const int gpu : gpus) {
    if (gpu < num_gpus) continue;
    object.Refuse(key, absl::StrCat("has GPU ", gpu, ", but machine.gpus is ", num_gpus));
    return;
  }
}

void ReadSwitch(ObjectReader& object, const PcieLinks& pcie, int num_gpus, PcieSwitch& out) {
  object.Require("gpus");
  object.ReadInts("gpus", kMachineGpusMax, kGpuIndex, out.gpus);
  CheckGpus(out.gpus, num_gpus, "gpus", object);
  out.uplink = pcie.bandwidth;
  ReadBandwidth("uplink", object, out.uplink);
  object.ReadInt("numaNode", IntRange{0, 63}, out.numa_node);
}

// Checks that each GPU is below one switch.
void CheckSwitches(const PcieLinks& pcie, int num_gpus, ObjectReader& object) {
  std::vector<int> times(static_cast<size_t>(num_gpus), 0);
  for (const PcieSwitch& each : pcie.switches) {
    for (const int gpu : each.gpus) {
      if (gpu < num_gpus) ++times[static_cast<size_t>(gpu)];
    }
  }
  for (int gpu = 0; gpu < num_gpus; ++gpu) {
    const int found = times[static_cast<size_t>(gpu)];
    if (found == 1) continue;
    object.Refuse("switches",
                  absl::StrCat("must have each GPU once, has GPU ", gpu, " ", found, " times"));
    return;
  }
}

void ReadPcie(ObjectReader& object, int num_gpus, PcieLinks& pcie) {
  object.Require("bandwidth");
  ReadBandwidth("bandwidth", object, pcie.bandwidth);
  ReadLatency("latency", object, pcie.latency);
  ReadBandwidth("betweenNumaNodes", object, pcie.between_numa_nodes);
  object.ReadObjects("switches", kMachineGpusMax, [&](ObjectReader& each) {
    ReadSwitch(each, pcie, num_gpus, pcie.switches.emplace_back());
  });
  if (!pcie.switches.empty()) return CheckSwitches(pcie, num_gpus, object);
  // One switch above all GPUs.
  PcieSwitch& only = pcie.switches.emplace_back();
  only.gpus.resize(static_cast<size_t>(num_gpus));
  std::iota(only.gpus.begin(), only.gpus.end(), 0);
  only.uplink = pcie.bandwidth;
}

void ReadPair(ObjectReader& object,
              int num_gpus,
              std::set<std::pair<int, int>>& seen,
              NvLinkPair& pair) {
  std::vector<int> between;
  object.Require("between");
  object.ReadInt("count", IntRange{1, kNvLinksMax}, pair.count);
  if (!object.ReadInts("between", 2, kGpuIndex, between)) return;
  CheckGpus(between, num_gpus, "between", object);
  if (between.size() != 2 || between[0] == between[1]) {
    object.Refuse("between", "must be two different GPUs, as [0, 3]");
    return;
  }
  pair.first = std::min(between[0], between[1]);
  pair.second = std::max(between[0], between[1]);
  if (!seen.emplace(pair.first, pair.second).second)
    object.Refuse("between", "is a pair that has been listed; set its count instead");
}

void ReadNvLinks(ObjectReader& object, int num_gpus, NvLinks& nvlink) {
  object.Require("bandwidth");
  ReadBandwidth("bandwidth", object, nvlink.bandwidth);
  ReadLatency("latency", object, nvlink.latency);
  object.ReadInt("linksToSwitch", IntRange{1, kNvLinksMax}, nvlink.links_to_switch);
  std::set<std::pair<int, int>> seen;
  const bool has_pairs =
      object.ReadObjects("links", kMachineGpusMax * kMachineGpusMax / 2, [&](ObjectReader& each) {
        ReadPair(each, num_gpus, seen, nvlink.pairs.emplace_back());
      });
  if (has_pairs && nvlink.links_to_switch > 0)
    object.Refuse("links", "is for GPUs without NVSwitch; leave it or linksToSwitch out");
  if (!has_pairs && nvlink.links_to_switch == 0) object.Require("links");
}

void ReadMachine(ObjectReader& object, Machine& machine) {
  object.ReadInt("gpus", IntRange{0, kMachineGpusMax}, machine.gpus);
  const int gpus = machine.gpus;
  if (gpus == 0) {
    object.Refuse("pcie", "is the links of GPUs; set machine.gpus");
    object.Refuse("nvlink", "is the links of GPUs; set machine.gpus");
  } else {
    object.Require("pcie");
    PcieLinks pcie;
    if (object.ReadObject("pcie", [&](ObjectReader& each) { ReadPcie(each, gpus, pcie); }))
      machine.pcie = pcie;
    NvLinks nvlink;
    if (object.ReadObject("nvlink", [&](ObjectReader& each) { ReadNvLinks(each, gpus, nvlink); }))
      machine.nvlink = nvlink;
  }
  object.ReadObjects("nics", kNicsMax, [&](ObjectReader& each) {
    Nic& nic = machine.nics.emplace_back();
    each.Require("bandwidth");
    ReadBandwidth("bandwidth", each, nic.bandwidth);
    each.ReadInt("count", IntRange{1, 64}, nic.count);
  });
}

void ReadRacks(ObjectReader& object, std::vector<Rack>& racks) {
  object.Refuse("workers", "is that of the racks; set cluster.racks[].workers");
  object.Refuse("servers", "is that of the racks; set cluster.racks[].servers");
  racks.clear();
  object.ReadObjects("racks", kClusterWorkersMax, [&](ObjectReader& each) {
    Rack& rack = racks.emplace_back(Rack{.workers = 0});
    each.ReadInt("workers", IntRange{0, kClusterWorkersMax}, rack.workers);
    each.ReadInt("servers", IntRange{0, kClusterServersMax}, rack.servers);
    each.Require("uplink");
    ReadBandwidth("uplink", each, rack.uplink);
  });
}

void ReadCluster(const Tree& tree, ObjectReader& object, Cluster& cluster) {
  const Tree* racks = FindField(tree, "racks");
  if (racks != nullptr && racks->kind != Tree::Kind::kNull) {
    ReadRacks(object, cluster.racks);
  } else {
    object.Skip("racks");
    Rack& rack = cluster.racks.front();
    object.ReadInt("workers", IntRange{1, kClusterWorkersMax}, rack.workers);
    object.ReadInt("servers", IntRange{0, kClusterServersMax}, rack.servers);
  }
  ReadBandwidth("serverBandwidth", object, cluster.server_bandwidth);
  ReadLatency("latency", object, cluster.latency);
}

// Rules between fields.
void CheckWhole(const Topology& topology, Problems& problems) {
  const int machines = NumWorkerMachines(topology);
  const int servers = NumServerMachines(topology);
  if (machines > kClusterWorkersMax || servers > kClusterServersMax) {
    problems.Add("cluster.racks",
                 absl::StrCat("must have at most ",
                              kClusterWorkersMax,
                              " workers and ",
                              kClusterServersMax,
                              " servers, has ",
                              machines,
                              " and ",
                              servers));
  }
  if (NumWorkers(topology) < 2) {
    problems.Add("cluster",
                 "must have at least two workers, that is machines, or GPUs of one machine: a "
                 "single one has nobody to synchronize with");
  }
  if (machines + servers > 1 && topology.machine.nics.empty())
    problems.Add("machine.nics", "must be set where there is more than one machine");
  if (servers == 0 && topology.cluster.server_bandwidth > 0)
    problems.Add("cluster.serverBandwidth", "has no effect without servers");
}

std::string Rate(double bytes) {
  return absl::StrFormat("%.6gGB/s", bytes / 1e9);
}
std::string Time(double seconds) {
  return absl::StrFormat("%.6gus", seconds * 1e6);
}

void AppendPcie(const PcieLinks& pcie, std::string& out) {
  absl::StrAppend(&out, "  pcie:\n    bandwidth: ", Rate(pcie.bandwidth), "\n");
  if (pcie.latency > 0) absl::StrAppend(&out, "    latency: ", Time(pcie.latency), "\n");
  if (pcie.between_numa_nodes > 0)
    absl::StrAppend(&out, "    betweenNumaNodes: ", Rate(pcie.between_numa_nodes), "\n");
  absl::StrAppend(&out, "    switches:\n");
  for (const PcieSwitch& each : pcie.switches) {
    absl::StrAppend(&out,
                    "    - {gpus: [",
                    absl::StrJoin(each.gpus, ", "),
                    "], uplink: ",
                    Rate(each.uplink),
                    ", numaNode: ",
                    each.numa_node,
                    "}\n");
  }
}

void AppendNvLinks(const NvLinks& nvlink, std::string& out) {
  absl::StrAppend(&out, "  nvlink:\n    bandwidth: ", Rate(nvlink.bandwidth), "\n");
  if (nvlink.latency > 0) absl::StrAppend(&out, "    latency: ", Time(nvlink.latency), "\n");
  if (nvlink.links_to_switch > 0) {
    absl::StrAppend(&out, "    linksToSwitch: ", nvlink.links_to_switch, "\n");
    return;
  }
  absl::StrAppend(&out, nvlink.pairs.empty() ? "    links: []\n" : "    links:\n");
  for (const NvLinkPair& pair : nvlink.pairs) {
    absl::StrAppend(
        &out, "    - {between: [", pair.first, ", ", pair.second, "], count: ", pair.count, "}\n");
  }
}

void AppendCluster(const Cluster& cluster, std::string& out) {
  absl::StrAppend(&out, "cluster:\n");
  const bool has_racks = cluster.racks.size() != 1 || cluster.racks.front().uplink > 0;
  if (!has_racks) {
    absl::StrAppend(&out,
                    "  workers: ",
                    cluster.racks.front().workers,
                    "\n  servers: ",
                    cluster.racks.front().servers,
                    "\n");
  } else {
    absl::StrAppend(&out, "  racks:\n");
    for (const Rack& rack : cluster.racks) {
      absl::StrAppend(&out,
                      "  - {workers: ",
                      rack.workers,
                      ", servers: ",
                      rack.servers,
                      ", uplink: ",
                      Rate(rack.uplink),
                      "}\n");
    }
  }
  if (cluster.server_bandwidth > 0)
    absl::StrAppend(&out, "  serverBandwidth: ", Rate(cluster.server_bandwidth), "\n");
  if (cluster.latency > 0) absl::StrAppend(&out, "  latency: ", Time(cluster.latency), "\n");
}

}  // namespace

ParsedTopology ParseTopology(absl::string_view text) {
  Problems problems;
  ParsedTopology parsed;
  Topology& topology = parsed.topology;
  const std::optional<Tree> tree = ReadYaml(text, problems);
  if (tree.has_value()) {
    ObjectReader root(*tree, "", problems);
    root.ReadConstant("apiVersion", kTrainingJobApiVersion);
    root.ReadConstant("kind", kTopologyKind);
    root.ReadString("name", topology.name);
    root.Require("machine");
    root.ReadObject("machine", [&](ObjectReader& each) { ReadMachine(each, topology.machine); });
    root.ReadObject("cluster", [&](ObjectReader& each) {
      ReadCluster(*FindField(*tree, "cluster"), each, topology.cluster);
    });
  }
  if (problems.empty()) CheckWhole(topology, problems);
  topology.name = Printable(topology.name, kNameBytesMax);
  parsed.problems = problems.Take();
  return parsed;
}

std::string ToYaml(const Topology& topology) {
  std::string out =
      absl::StrCat("apiVersion: ", kTrainingJobApiVersion, "\nkind: ", kTopologyKind, "\n");
  if (!topology.name.empty()) absl::StrAppend(&out, "name: ", Quoted(topology.name), "\n");
  const Machine& machine = topology.machine;
  absl::StrAppend(&out, "machine:\n  gpus: ", machine.gpus, "\n");
  if (machine.pcie) AppendPcie(*machine.pcie, out);
  if (machine.nvlink) AppendNvLinks(*machine.nvlink, out);
  if (!machine.nics.empty()) absl::StrAppend(&out, "  nics:\n");
  for (const Nic& nic : machine.nics)
    absl::StrAppend(&out, "  - {bandwidth: ", Rate(nic.bandwidth), ", count: ", nic.count, "}\n");
  AppendCluster(topology.cluster, out);
  return out;
}

}  // namespace pushpull
