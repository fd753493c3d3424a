// SPDX-License-Identifier: Apache-2.0
//
// `pushpull run`: a TrainingJob as local processes.
//
//   coordinator --ready--> servers --all ready--> workers --all done--> report, stop in order
//
// A worker or the coordinator that ends is restarted by the manifest's rules, and so is a server if
// others hold copies of its state; otherwise its end fails the job. Whatever happens, every process
// that was started is gone when LaunchJob returns; if the launcher itself is killed, the guardian
// ensures this.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/training_job.h"
#include "runtime/local/rack_network.h"
#include "runtime/local/tensorboard.h"
#include "runtime/plan/topology.h"
#include "runtime/tls/tls_folder.h"

namespace pushpull {

struct LaunchOptions {
  std::string manifest_path;
  std::string merged_manifest = {};    // merged with its runtime, as JSON; empty: it names none
  std::vector<std::string> overrides;  // --set, also passed to the coordinator
  std::string workdir;
  std::string report_path;     // empty: no report
  std::string checkpoints;     // their root (checkpoint_place.h); empty: the job has none
  bool shows_progress = true;  // false: only the processes' output, and the end
  std::string program;         // path of `pushpull` itself
  std::map<std::string, std::string> environment;
  // The machines and racks that members are placed on, each machine in a network namespace of its
  // own; none: all members are on this host.
  std::optional<Topology> topology = {};
  std::vector<std::string> gpus = {};  // that workers may use (gpus.h); LaunchJob finds them
  // LaunchJob makes it from the topology; null: there is no topology.
  const RackNetwork* network = nullptr;
  // The certificates of PUSHPULL_TLS_DIR, set by LaunchJob; null: no TLS.
  const TlsFolder* tls = nullptr;
  std::string tensorboard_folder = {};    // for event files; empty: none
  TensorBoardLog* tensorboard = nullptr;  // LaunchJob opens it in that folder; null: none
};

// Blocks until the job has ended and everything is stopped. Returns the exit code of
// docs/interfaces.md section 2. Call it before the process has threads.
int LaunchJob(const LaunchOptions& options, const TrainingJob& job);

}  // namespace pushpull
