// SPDX-License-Identifier: Apache-2.0
//
// The settings of the coordinator's decisions, most of them from the manifest.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/coordinator/checkpoint_agreement.h"
#include "runtime/job/training_job.h"
#include "runtime/membership/control.h"

namespace pushpull {

struct JobCoreOptions {
  JobSettings settings;
  Consistency consistency = {};  // at the start of the job: spec.sync.mode, staleness, ...
  uint32_t min_servers = 1;      // spec.servers.minReplicas
  uint32_t max_servers = 1024;   // spec.servers.maxReplicas
  uint32_t min_workers = 1;      // spec.workers.minReplicas
  uint32_t max_workers = 4096;   // spec.workers.maxReplicas
  LocalReduce local_reduce = LocalReduce::kNone;  // spec.sync.localReduce
  bool has_colocated_servers = false;             // spec.workers.colocatedServer
  Term term{1};
  uint64_t ring_secret = 0;  // random; mode AllReduce
  Duration heartbeat = std::chrono::seconds(1);
  StallPolicy on_stall = StallPolicy::kWarn;                  // spec.sync.onStall
  Duration peer_timeout = std::chrono::seconds(20);           // spec.restart.peerTimeoutSeconds
  SuccessPolicy success_policy = SuccessPolicy::kAllWorkers;  // spec.restart.successPolicy
  // How long workers may report the interrupted tensor and step after a server's loss has failed
  // the job.
  Duration failure_grace = std::chrono::seconds(1);
  std::optional<CheckpointPolicy> checkpoint = {};  // spec.checkpoint
  std::optional<LoadedCheckpoint> restore = {};     // the job starts from this checkpoint
  bool restores_values_only = false;                // anew, with the values of its tensors
  Step step_before = {};  // that the job had reached when it was last noted (NoteStep)
  // Whether members are asked for their state first. kNone: this is the job's first coordinator;
  // kIfKnown: members may have state; kExpected: they have state and are waited for.
  enum class Recovery { kNone, kIfKnown, kExpected };
  Recovery recovery = Recovery::kNone;
  // How long, from the first registration on, to wait for other members to find this coordinator:
  // for members that no report has named, for those that reports name, and for servers without
  // whose state values would be lost. A cluster's DNS serves the address of the earlier coordinator
  // for up to 5 s, and each attempt to reach it takes time; a member that is given up must restart.
  Duration collect_grace = std::chrono::seconds(3);
  Duration named_grace = std::chrono::seconds(10);
  Duration loss_grace = std::chrono::seconds(20);
  // True: shards without a live holder are rebuilt from the workers' copies once loss_grace has
  // passed. False: such a loss fails the job.
  bool repairs_losses = false;

  // Whether steps, optimizers and the position in the data set are those of a checkpoint.
  bool continues() const { return restore && !restores_values_only; }
};

}  // namespace pushpull
