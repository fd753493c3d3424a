// SPDX-License-Identifier: Apache-2.0
//
// A server's metrics (docs/interfaces.md section 7).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include <prometheus/counter.h>
#include <prometheus/gauge.h>

#include "pushpull/deadline.h"

#include "runtime/metrics/byte_counters.h"
#include "runtime/metrics/histogram.h"

namespace pushpull {

// Why something was counted in pushpull_errors_total.
enum class ServerError : uint8_t {
  kBadFrame,     // a checksum, size or order that no correct peer sends
  kRejected,     // a connection without a valid hello
  kRefusedPush,  // not a member, unknown chunk, wrong size or step
  kConnectionLost,
};

// Thread-safe.
class ServerMetrics {
 public:
  // Adds the families to `registry`, which outlives this object.
  explicit ServerMetrics(MetricsRegistry& registry);

  void AddPushed(absl::string_view channel, uint64_t bytes) { pushed_.Add(channel, bytes); }
  void AddPulled(absl::string_view channel, uint64_t bytes) { pulled_.Add(channel, bytes); }
  void AddReplicated(absl::string_view channel, uint64_t bytes) { replicated_.Add(channel, bytes); }
  // The part of the pushed bytes that was added from the workers' own memory.
  void AddInPlace(uint64_t bytes) { in_place_.Increment(static_cast<double>(bytes)); }
  void AddDuplicate() { duplicates_.Increment(); }
  void AddNonFinite() { nonfinite_.Increment(); }
  void AddError(ServerError reason) { errors_[static_cast<size_t>(reason)]->Increment(); }
  void ObserveQueue(Duration waited) { queue_.Observe(ToSeconds(waited)); }
  // By how many versions a gradient is behind the chunk to which it is applied.
  void ObserveStaleness(uint64_t steps) { staleness_.Observe(static_cast<double>(steps)); }
  void SetBytesOwned(uint64_t bytes) { bytes_.Set(static_cast<double>(bytes)); }
  void SetBusyRatio(double ratio) { busy_.Set(ratio); }
  void SetStep(uint64_t version) { step_.Set(static_cast<double>(version)); }

 private:
  BytesByChannel pushed_;
  BytesByChannel pulled_;
  BytesByChannel replicated_;
  prometheus::Counter& in_place_;
  prometheus::Counter& duplicates_;
  prometheus::Counter& nonfinite_;
  std::vector<prometheus::Counter*> errors_;  // by ServerError
  Histogram& queue_;
  Histogram& staleness_;
  prometheus::Gauge& bytes_;
  prometheus::Gauge& busy_;
  prometheus::Gauge& step_;
};

}  // namespace pushpull
