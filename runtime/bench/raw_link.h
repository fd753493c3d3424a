// SPDX-License-Identifier: Apache-2.0
//
// What the machine's loopback does without a parameter server: the references that a benchmark's
// figures are divided by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/bench/sync_summary.h"

namespace pushpull {

// Two TCP streams over the loopback, 256 KB a call, sender and receiver each walking over memory of
// 160 MB, so that payloads come from memory and go to it as gradients do. Thread-compatible.
class RawLink {
 public:
  // Maps and fills the memory. kResourceExhausted: there is none.
  static absl::StatusOr<RawLink> Make();
  ~RawLink();
  RawLink(RawLink&& other) noexcept;
  RawLink& operator=(RawLink&&) = delete;
  RawLink(const RawLink&) = delete;
  RawLink& operator=(const RawLink&) = delete;

  // Moves that many bytes, half over each stream; blocks. Its two senders and two receivers have
  // ended when it returns. kUnavailable, kDeadlineExceeded: of the sockets.
  absl::StatusOr<LinkBurst> Measure(uint64_t num_bytes);

 private:
  RawLink(std::span<std::byte> outgoing, std::span<std::byte> incoming)
      : outgoing_(outgoing), incoming_(incoming) {}

  std::span<std::byte> outgoing_;
  std::span<std::byte> incoming_;
};

// Seconds of `count` round trips of `num_bytes` in both directions, over a TCP connection between
// two threads that wait with epoll; blocks.
absl::StatusOr<std::vector<double>> MeasureRoundTrips(size_t num_bytes, size_t count);

}  // namespace pushpull
