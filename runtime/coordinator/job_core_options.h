// SPDX-License-Identifier: Apache-2.0
//
// The manifest's part in the coordinator's decisions.
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
  Consistency consistency = {};        // at the start of the job: spec.sync.mode, staleness, ...
  uint32_t min_servers = 1;            // spec.servers.minReplicas
  uint32_t max_servers = 1024;         // spec.servers.maxReplicas
  uint32_t min_workers = 1;            // spec.workers.minReplicas
  uint32_t max_workers = 4096;         // spec.workers.maxReplicas
  bool has_colocated_servers = false;  // spec.workers.colocatedServer
  Term term{1};
  uint64_t ring_secret = 0;  // random; mode AllReduce
  Duration heartbeat = std::chrono::seconds(1);
  StallPolicy on_stall = StallPolicy::kWarn;                  // spec.sync.onStall
  Duration peer_timeout = std::chrono::seconds(20);           // spec.restart.peerTimeoutSeconds
  SuccessPolicy success_policy = SuccessPolicy::kAllWorkers;  // spec.restart.successPolicy
  // After a server's loss has failed the job: how long workers may report the interrupted tensor
  // and step.
  Duration failure_grace = std::chrono::seconds(1);
  std::optional<CheckpointPolicy> checkpoint = {};  // spec.checkpoint
  std::optional<LoadedCheckpoint> restore = {};     // the job starts from this checkpoint
  // Whether members are asked for their state first. kNone: this is the job's first coordinator;
  // kIfKnown: members may have state; kExpected: they have, so that they are waited for.
  enum class Recovery { kNone, kIfKnown, kExpected };
  Recovery recovery = Recovery::kNone;
  // From the first registration on: how long other members may take to find this coordinator where
  // nobody has said who they are, how long those that reports name, and how long servers without
  // whose state values would be lost. A cluster's DNS serves the address of the earlier coordinator
  // for up to 5 s, and each try to reach it takes time: who is given up must start anew.
  Duration collect_grace = std::chrono::seconds(3);
  Duration named_grace = std::chrono::seconds(10);
  Duration loss_grace = std::chrono::seconds(20);
  // Shards without a live holder are rebuilt from the workers' copies once loss_grace is over for
  // the last holders. Otherwise such a loss fails the job.
  bool repairs_losses = false;
};

}  // namespace pushpull
