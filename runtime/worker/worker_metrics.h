// SPDX-License-Identifier: Apache-2.0
//
// A worker's metrics (docs/interfaces.md section 7).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/membership/control.h"
#include "runtime/metrics/registry.h"
#include "runtime/worker/sync_meter.h"

namespace pushpull {

// Thread-safe.
class WorkerMetrics {
 public:
  // Adds the families to `registry`, which outlives this object.
  explicit WorkerMetrics(MetricsRegistry& registry);
  ~WorkerMetrics();

  // `trace`: the number of the trace that has this step, for exemplars to refer to.
  void Observe(const SyncObservation& observation, std::optional<uint64_t> trace);
  void AddPushed(absl::string_view channel, uint64_t bytes);
  void AddPulled(absl::string_view channel, uint64_t bytes);
  void AddResend();
  // A gradient of one chunk counts in its step; `is_joint`: in the sum of a group (localReduce).
  void AddChunkPush(bool is_joint);
  void AddOverflows(uint64_t values);
  void AddSamples(uint64_t samples);
  void SetStep(uint64_t step);
  void SetLoss(double loss);
  // All servers that this worker has exchanged data with since the start.
  void SetLinks(const std::vector<LinkCosts>& links);

 private:
  struct Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace pushpull
