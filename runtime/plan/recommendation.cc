// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/recommendation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "runtime/plan/planner.h"
#include "runtime/plan/quantity.h"

namespace pushpull {
namespace {

// Suits a single machine: docs/choosing-servers-and-workers.md.
constexpr int kServersOfAMachine = 2;
constexpr absl::string_view kRackLabel = "topology.kubernetes.io/rack";

void AddFields(const Topology& topology, const Strategy& strategy, Recommendation& result) {
  const absl::string_view name = strategy.schedule.name;
  const int machines = NumWorkerMachines(topology);
  const int gpus = topology.machine.gpus;
  const bool is_each_gpu_a_worker = name == "servers" || name == "host";
  int servers = std::max(NumServerMachines(topology), 1);
  if (name == "host") servers = kServersOfAMachine;
  if (name == "colocated") servers = 1;
  const bool is_all_reduce = strategy.schedule.runner == Runner::kWorkers;
  if (is_all_reduce) servers = 0;
  const auto add = [&](absl::string_view path, absl::string_view value) {
    result.fields.push_back({std::string(path), std::string(value)});
  };
  add("spec.servers.replicas", absl::StrCat(servers));
  add("spec.workers.replicas",
      absl::StrCat(is_each_gpu_a_worker ? machines * std::max(gpus, 1) : machines));
  if (gpus > 0) {
    add("spec.workers.gpusPerWorker", absl::StrCat(is_each_gpu_a_worker ? 1 : gpus));
  }
  if (name == "colocated") add("spec.workers.colocatedServer", "true");
  if (name == "rack_ring") add("spec.workers.topologyKey", kRackLabel);
  add("spec.sync.mode", is_all_reduce ? "AllReduce" : "Sync");
}

void AddNotes(const Topology& topology,
              const std::vector<Strategy>& strategies,
              const Strategy& strategy,
              Recommendation& result) {
  const auto note = [&](std::string text) { result.notes.push_back(std::move(text)); };
  const Schedule& schedule = strategy.schedule;
  if (strategies.front().schedule.runner == Runner::kPlanned) {
    note(absl::StrCat(strategies.front().schedule.name,
                      " would be faster, but nothing runs it yet"));
  }
  const bool is_on_one_machine = NumWorkerMachines(topology) == 1;
  if (schedule.runner == Runner::kProgram) {
    note(is_on_one_machine && schedule.name != "hierarchical"
             ? "one worker has all GPUs; its program sums over them, for instance with NCCL, and "
               "Pushpull's server keeps the parameters"
             : "one worker has all GPUs of its machine; its program sums over them, for instance "
               "with NCCL, before it pushes");
  }
  if (schedule.runner == Runner::kWorkers) {
    note(
        "mode AllReduce has neither checkpoints nor codecs, and every worker has the optimizer's "
        "state: docs/choosing-a-mode.md");
  }
  if (schedule.name == "rack_ring") {
    note(absl::StrCat("nodes need the label ",
                      kRackLabel,
                      ", or another one that topologyKey names; workers in racks of unequal size "
                      "take longer"));
  }
  if (schedule.name == "colocated") {
    note(
        "colocatedServer is for Kubernetes; at least one server has a pod of its own besides, "
        "spec.servers.replicas, which the prediction leaves out");
  }
  if (schedule.name == "host") {
    note(
        "workers and servers of a machine share memory by themselves; PUSHPULL_CHANNEL stays "
        "unset");
    note(
        "what the host's processors take for the sums is not in the prediction: `pushpull bench "
        "sync "
        "--channel shm` measures it");
  }
  const LinkUse& busiest = strategy.links.front();
  const bool is_network = busiest.kind == LinkKind::kWorkerNic ||
                          busiest.kind == LinkKind::kServerNic ||
                          busiest.kind == LinkKind::kRackUplink;
  if (busiest.kind == LinkKind::kServerNic &&
      NumServerMachines(topology) < NumWorkerMachines(topology)) {
    note(
        absl::StrCat("the servers' NICs are the limit: the time goes down with m / n until there "
                     "are ",
                     NumWorkerMachines(topology),
                     " servers"));
  }
  if (is_network && schedule.runner != Runner::kWorkers) {
    note(
        "the network is the limit: a codec makes what workers push smaller, fp16 by half; it is "
        "an argument of the program's registration or optimizer, not a field");
  }
  if (topology.cluster.racks.size() > 1) {
    note(
        "members are not placed by rack: their numbers in each rack are the scheduler's, and the "
        "prediction is for those of the file");
  }
}

}  // namespace

Recommendation Recommend(const Topology& topology, const std::vector<Strategy>& strategies) {
  const Strategy& strategy = *Planner::BestOfToday(strategies);
  Recommendation result{.strategy = strategy.schedule.name};
  AddFields(topology, strategy, result);
  AddNotes(topology, strategies, strategy, result);
  return result;
}

std::vector<std::string> ToManifest(const std::vector<ManifestField>& fields) {
  std::vector<std::string> lines = {"spec:"};
  std::string open;  // the object of the previous line
  for (const ManifestField& field : fields) {
    // All fields are spec.OBJECT.FIELD.
    const size_t begin = field.path.find('.') + 1;
    const size_t end = field.path.rfind('.');
    const std::string object = field.path.substr(begin, end - begin);
    if (object != open) lines.push_back(absl::StrCat("  ", object, ":"));
    open = object;
    lines.push_back(absl::StrCat("    ", field.path.substr(end + 1), ": ", field.value));
  }
  return lines;
}

}  // namespace pushpull
