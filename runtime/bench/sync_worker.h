// SPDX-License-Identifier: Apache-2.0
//
// A worker of a synchronisation benchmark, and its protocol with the benchmark.
//
//   benchmark                     worker
//             <-- WorkerReady --  joined, registered, the first gradient is ready
//   kSteps n  ----------------->  n steps; after all but the last: checks its sums, next gradient
//             <-- StepTimes x n
//   kCheck    ----------------->  checks the last step's sums, next gradient
//             <-- Verdict ------
//   kLeave    ----------------->  leaves the job, ends
//
// The benchmark asks for one step at a time, unless there is only one worker, so that no worker's
// checks take CPU time from another's step.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace pushpull {

struct WorkerReady {
  uint32_t worker;
};

enum class OrderKind : uint32_t { kSteps = 1, kCheck = 2, kLeave = 3 };
struct Order {
  OrderKind kind;
  uint32_t steps;
};

// Nanoseconds; begin and end of the steady clock, which all processes of a machine share.
struct StepTimes {
  int64_t begin;
  int64_t end;
  int64_t cpu;  // of this worker's process
};

// Of all steps so far.
struct Verdict {
  uint32_t is_right;
};

struct SyncWorkerOptions {
  std::string control;  // path of the benchmark's socket
  uint64_t bytes = 0;
  std::string tensors;
  bool is_registered = false;  // gradients and sums are read in the other side's memory
};

// Blocks until the benchmark releases it. `environment` is that of a worker's program.
absl::Status RunSyncWorker(const SyncWorkerOptions& options,
                           const std::map<std::string, std::string>& environment);

}  // namespace pushpull
