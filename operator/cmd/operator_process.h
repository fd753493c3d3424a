// SPDX-License-Identifier: Apache-2.0
//
// The operator process: wiring, leader election, startup and shutdown. Exit codes:
// docs/interfaces.md section 2; after a stop signal 128 plus its number (runtime/base/signals.h).
#pragma once

#include <string>

#include "absl/status/status.h"

#include "operator/cmd/config.h"
#include "operator/kube/cluster_access.h"

namespace pushpull_operator {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;        // any other error
constexpr int kExitUsage = 2;         // wrong usage or invalid configuration
constexpr int kExitNotReachable = 3;  // a file cannot be read or a port is taken

// Prints `pushpull-operator: TEXT` to standard error and returns the code.
int ReportError(const absl::Status& status);

struct OperatorStart {
  OperatorConfig config;
  ClusterAccess access;
  std::string pod_namespace;  // of the operator's own pod; empty: not running in a pod
  // Holder of the lease and reporter of events; unique to this process.
  std::string instance;
};

// Runs until a stop signal (BlockStopSignals was called before). Returns the exit code; prints
// errors.
int RunOperator(const OperatorStart& start);

}  // namespace pushpull_operator
