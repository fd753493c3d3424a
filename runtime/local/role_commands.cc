// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/role_commands.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/termination_message.h"
#include "runtime/local/gpus.h"
#include "runtime/local/references.h"

namespace pushpull {
namespace {

// Every listener gets a free port of its own, so that several jobs fit on one machine.
constexpr char kAnyPort[] = "127.0.0.1:0";

// What the operator sets in a worker's container after spec.env: `$(NAME)` in command and args may
// name these, but in the values of spec.env may not.
constexpr const char* kVariablesOfPods[] = {"PUSHPULL_JOB",
                                            "PUSHPULL_ROLE",
                                            "PUSHPULL_INDEX",
                                            "PUSHPULL_COORDINATOR",
                                            "PUSHPULL_METRICS_PORT",
                                            "PUSHPULL_LOG_LEVEL",
                                            "PUSHPULL_RING",
                                            "PUSHPULL_GROUP",
                                            "PUSHPULL_NODE",
                                            kTlsFolderVariable,
                                            kTerminationLogVariable};

// A free port at the address where the member is reached.
std::string AnyPortOf(const std::string& address) {
  return absl::StrCat(address, ":0");
}

// Members know their racks if the job asks for that, as on Kubernetes.
bool KnowsRacks(const LaunchOptions& options, const TrainingJob& job) {
  return options.network != nullptr && !job.spec.workers.topology_key.empty();
}

std::string Value(const std::map<std::string, std::string>& environment, const std::string& name) {
  const auto it = environment.find(name);
  return it == environment.end() ? "" : it->second;
}

absl::StatusOr<std::string> FindProgram(const std::string& name, const LaunchOptions& options) {
  if (name.find('/') != std::string::npos) return name;
  const std::string beside = (std::filesystem::path(options.program).parent_path() / name).string();
  if (access(beside.c_str(), X_OK) == 0) return beside;
  std::istringstream folders(Value(options.environment, "PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string path = absl::StrCat(folder, "/", name);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return absl::NotFoundError(absl::StrCat(
      "spec.command: program ", name, " is neither beside ", options.program, " nor on PATH"));
}

using Variables = std::map<std::string, std::string>;

// As in a pod, each may refer to those before it and to no others: not to this shell's.
Variables UserVariables(const TrainingJob& job) {
  Variables variables;
  for (const EnvVar& variable : job.spec.env)
    variables[variable.name] = ReplaceReferences(variable.value, variables);
  return variables;
}

// The words of command and args. `variables`: of the user; `environment`: all of the worker's.
absl::StatusOr<std::vector<std::string>> WorkerCommand(const LaunchOptions& options,
                                                       const TrainingJob& job,
                                                       Variables variables,
                                                       const Variables& environment) {
  for (const char* name : kVariablesOfPods) {
    const auto found = environment.find(name);
    if (found != environment.end()) variables[name] = found->second;
  }
  std::vector<std::string> words;
  for (const std::vector<std::string>* part : {&job.spec.command, &job.spec.args}) {
    for (const std::string& word : *part) words.push_back(ReplaceReferences(word, variables));
  }
  PUSHPULL_ASSIGN_OR_RETURN(words.front(), FindProgram(words.front(), options));
  return words;
}

}  // namespace

ProcessSpec CoordinatorProcess(const LaunchOptions& options, const CoordinatorStart& start) {
  const bool is_first = start.recover_at.control.empty();
  const std::string any_port =
      options.network == nullptr ? kAnyPort : AnyPortOf(options.network->here());
  ProcessSpec spec{.name = "coordinator",
                   .command = {options.program,
                               "coordinator",
                               "--manifest",
                               start.manifest,
                               "--listen",
                               is_first ? any_port : start.recover_at.control,
                               "--metrics",
                               is_first ? any_port : start.recover_at.metrics,
                               "--term",
                               absl::StrCat(start.term)},
                   .environment = options.environment,
                   .reports_ready = true};
  if (!is_first) spec.command.push_back("--recover");
  for (const std::string& override : options.overrides) {
    spec.command.insert(spec.command.end(), {"--set", override});
  }
  if (!options.checkpoints.empty())
    spec.command.insert(spec.command.end(), {"--checkpoints", options.checkpoints});
  if (start.goes_on) {
    spec.command.insert(
        spec.command.end(),
        {"--set", "spec.checkpoint.restoreFrom=latest", "--set", "spec.checkpoint.restore=All"});
  }
  return spec;
}

ProcessSpec ServerProcess(const LaunchOptions& options,
                          const TrainingJob& job,
                          int index,
                          const std::string& coordinator) {
  RackNetwork::Place place = {.network = -1, .address = "127.0.0.1", .machine = "", .rack = ""};
  if (options.network != nullptr) place = options.network->OfServer(index);
  ProcessSpec spec{.name = absl::StrCat("server-", index),
                   .command = {options.program,
                               "server",
                               "--job",
                               job.metadata.name,
                               "--index",
                               absl::StrCat(index),
                               "--coordinator",
                               coordinator,
                               "--listen",
                               AnyPortOf(place.address),
                               "--metrics",
                               AnyPortOf(place.address),
                               "--threads",
                               absl::StrCat(job.spec.servers.threads)},
                   .environment = options.environment,
                   .network = place.network,
                   .reports_ready = true};
  if (KnowsRacks(options, job)) spec.environment["PUSHPULL_RACK"] = place.rack;
  return spec;
}

absl::StatusOr<ProcessSpec> WorkerProcess(const LaunchOptions& options,
                                          const TrainingJob& job,
                                          int index,
                                          const std::string& coordinator) {
  ProcessSpec spec{.name = absl::StrCat("worker-", index), .environment = options.environment};
  if (job.spec.workers.gpus_per_worker > 0 && !options.gpus.empty()) {
    spec.environment["CUDA_VISIBLE_DEVICES"] =
        GpusOfWorker(options.gpus, job.spec.workers.gpus_per_worker, index);
  }
  const Variables variables = UserVariables(job);
  for (const auto& [name, value] : variables) spec.environment[name] = value;
  // By default numeric libraries use all cores in each process; workers would compete for them.
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  spec.environment.emplace("OMP_NUM_THREADS",
                           absl::StrCat(std::max(1, cores / job.spec.workers.replicas)));
  spec.environment.emplace("PUSHPULL_LOG_LEVEL", "info");
  spec.environment["PUSHPULL_JOB"] = job.metadata.name;
  spec.environment["PUSHPULL_ROLE"] = "worker";
  spec.environment["PUSHPULL_INDEX"] = absl::StrCat(index);
  spec.environment["PUSHPULL_COORDINATOR"] = coordinator;
  spec.environment["PUSHPULL_METRICS_PORT"] = "0";
  const bool reduces = job.spec.sync.local_reduce != LocalReduce::kNone;
  std::string others = kAnyPort;  // where they reach this worker
  if (options.network != nullptr) {
    const RackNetwork::Place place = options.network->OfWorker(index);
    spec.network = place.network;
    others = AnyPortOf(place.address);
    if (reduces) spec.environment["PUSHPULL_NODE"] = place.machine;
    if (KnowsRacks(options, job)) spec.environment["PUSHPULL_RACK"] = place.rack;
  }
  if (job.spec.sync.mode == SyncMode::kAllReduce) spec.environment["PUSHPULL_RING"] = others;
  if (reduces) spec.environment["PUSHPULL_GROUP"] = others;
  PUSHPULL_ASSIGN_OR_RETURN(spec.command, WorkerCommand(options, job, variables, spec.environment));
  return spec;
}

}  // namespace pushpull
