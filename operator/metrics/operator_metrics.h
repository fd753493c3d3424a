// SPDX-License-Identifier: Apache-2.0
//
// The operator's metrics (docs/interfaces.md section 7).
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

#include "pushpull/deadline.h"

#include "runtime/metrics/registry.h"

namespace pushpull_operator {

// Values read at each scrape.
struct OperatorGauges {
  std::map<std::string, int> jobs;  // by phase
  int scaling_blocked = 0;          // jobs
  size_t queue_depth = 0;
  bool is_leader = false;
};

// Thread-safe.
class OperatorMetrics {
 public:
  // Adds the families to `registry`, which outlives this object.
  explicit OperatorMetrics(pushpull::MetricsRegistry& registry);
  ~OperatorMetrics();
  OperatorMetrics(const OperatorMetrics&) = delete;
  OperatorMetrics& operator=(const OperatorMetrics&) = delete;

  void Update(const OperatorGauges& gauges);

  // `took` is wall time, `computed` the CPU time in it.
  void ObserveReconcile(pushpull::Duration took, pushpull::Duration computed);
  void CountReconcileError();
  // A write failed because another writer had changed the object.
  void CountConflict();
  // A member was restarted, with the reason of its event.
  void CountRestart(absl::string_view reason);
  // A request to the API server; `code` is 0 without a response.
  void CountRequest(absl::string_view verb, int code);

 private:
  struct Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace pushpull_operator
