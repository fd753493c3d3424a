// SPDX-License-Identifier: Apache-2.0
//
// `pushpull bench sync`: times steps of a job of local processes, checks every sum, and measures
// the raw link between its rounds.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/bench/sync_summary.h"

namespace pushpull {

// kInvalidArgument names the option that is wrong. For `environment` see RunSyncBench.
absl::Status Validate(const SyncOptions& options,
                      const std::map<std::string, std::string>& environment);

// Blocks for the whole run, with deadlines. `program` is the path of `pushpull`; its processes get
// `environment`, whose PUSHPULL_TLS_DIR has the certificates if the options ask for TLS. The
// options must be valid. When `is_stopped` becomes true, the run soon ends with kCancelled.
absl::StatusOr<SyncMeasurements> RunSyncBench(const SyncOptions& options,
                                              const std::string& program,
                                              const std::map<std::string, std::string>& environment,
                                              const std::atomic<bool>& is_stopped);

}  // namespace pushpull
