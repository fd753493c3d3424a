// SPDX-License-Identifier: Apache-2.0
//
// The operator process: wiring, leader election, startup and shutdown. Exit codes:
// docs/interfaces.md section 2; after a stop signal 128 plus its number (runtime/base/signals.h).
#pragma once

#include <string>

#include "operator/cmd/config.h"
#include "operator/kube/cluster_access.h"

namespace pushpull_operator {

// Prefix of messages on standard error.
inline constexpr char kProgram[] = "pushpull-operator";

struct OperatorStart {
  OperatorConfig config;
  ClusterAccess access;
  std::string pod_namespace;  // of the operator's own pod; empty: not running in a pod
  // Holder of the lease and reporter of events; unique to this process.
  std::string instance;
  bool lease_was_seen = false;  // this process has led before
};

// Runs until a stop signal (BlockStopSignals was called before). Returns the exit code; prints
// errors.
int RunOperator(const OperatorStart& start);

}  // namespace pushpull_operator
