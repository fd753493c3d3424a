// SPDX-License-Identifier: Apache-2.0
//
// A server's metrics (docs/interfaces.md section 7).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"

#include "pushpull/deadline.h"

#include "runtime/metrics/registry.h"

namespace pushpull {

// Why something was counted in pushpull_errors_total.
enum class ServerError : uint8_t {
  kBadFrame,     // checksum, size or order that no correct peer sends
  kRejected,     // a connection without a valid hello
  kRefusedPush,  // not a member, unknown chunk, wrong size or step
  kConnectionLost,
};

// Thread-safe.
class ServerMetrics {
 public:
  // Adds the families to `registry`, which outlives this object.
  explicit ServerMetrics(MetricsRegistry& registry);
  ~ServerMetrics();

  void AddPushed(absl::string_view channel, uint64_t bytes);
  void AddPulled(absl::string_view channel, uint64_t bytes);
  void AddReplicated(absl::string_view channel, uint64_t bytes);
  // Of those that were pushed, what was added from the workers' own memory.
  void AddInPlace(uint64_t bytes);
  void AddDuplicate();
  void AddNonFinite();
  void AddError(ServerError reason);
  void ObserveQueue(Duration waited);
  // Versions that a gradient is behind the chunk it is applied to.
  void ObserveStaleness(uint64_t steps);
  void SetBytesOwned(uint64_t bytes);
  void SetBusyRatio(double ratio);
  void SetStep(uint64_t version);

 private:
  struct Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace pushpull
