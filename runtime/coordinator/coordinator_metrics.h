// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's metrics (docs/interfaces.md section 7).
#pragma once

#include <memory>

#include "pushpull/deadline.h"

#include "runtime/membership/job_status.h"
#include "runtime/metrics/registry.h"

namespace pushpull {

// Thread-safe.
class CoordinatorMetrics {
 public:
  // Adds the families to `registry`, which outlives this object.
  explicit CoordinatorMetrics(MetricsRegistry& registry);
  ~CoordinatorMetrics();

  void Update(const JobStatus& status);
  // A checkpoint is complete, `took` after its request.
  void ObserveCheckpoint(Duration took);

 private:
  struct Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace pushpull
