// SPDX-License-Identifier: Apache-2.0
//
// The operator as one process: everything wired together, from the first connection to the lease
// that is given back.
#pragma once

#include <string>

#include "operator/cmd/config.h"
#include "operator/kube/cluster_access.h"

namespace pushpull_operator {

struct OperatorStart {
  OperatorConfig config;
  ClusterAccess access;
  std::string pod_namespace;  // of the operator's own pod; empty: it is none
  // Who holds the lease and tells events: like no other process's, and like no earlier one's.
  std::string instance;
};

// Runs until a stop signal, which BlockStopSignals has taken from the threads, or until the lease
// is lost. Returns the exit code; errors are printed.
int RunOperator(const OperatorStart& start);

}  // namespace pushpull_operator
