// SPDX-License-Identifier: Apache-2.0
//
// What the machine's loopback achieves without a parameter server: the references by which a
// benchmark's figures are divided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/bench/sync_summary.h"

namespace pushpull {

// Two TCP streams over the loopback, 256 KB per call. Sender and receiver each cycle through 160 MB
// of memory, so that payloads come from memory and go to it, as gradients do. Thread-compatible.
class RawLink {
 public:
  // Moves that many bytes, half over each stream; blocks. Its two senders and two receivers have
  // ended when it returns. kUnavailable and kDeadlineExceeded come from the sockets.
  absl::StatusOr<LinkBurst> Measure(uint64_t num_bytes);

 private:
  static constexpr size_t kMemoryBytes = 160'000'000;

  std::vector<std::byte> outgoing_ = std::vector<std::byte>(kMemoryBytes);
  std::vector<std::byte> incoming_ = std::vector<std::byte>(kMemoryBytes);
};

// The time of one of this machine's clocks, in nanoseconds.
int64_t NanosecondsOf(clockid_t clock);

// The seconds of each of `count` round trips of `num_bytes` in both directions, over a TCP
// connection between two threads that wait with epoll; blocks.
absl::StatusOr<std::vector<double>> MeasureRoundTrips(size_t num_bytes, size_t count);

}  // namespace pushpull
