// SPDX-License-Identifier: Apache-2.0
//
// A link between two ranks on one host: bytes are copied into a ring in shared memory, and the
// other end reduces them there, or copies them out. If the sender's array is in shared memory, the
// other end reads that array instead. No system calls, except to wake a sleeping end. The
// connection over which the two met carries nothing more; its end means that the peer is gone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "runtime/collective/peer_link.h"
#include "runtime/collective/shm/rank_memory.h"

namespace pushpull {

class ShmLink final : public PeerLink {
 public:
  struct Parts {
    std::shared_ptr<OwnRankMemory> own;
    size_t peer;  // its rank
    NeighbourMemory neighbour;
    FileDescriptor doorbell;  // the peer's: an eventfd
    FileDescriptor socket;    // non-blocking
  };
  explicit ShmLink(Parts parts);

  absl::StatusOr<size_t> Send(std::span<const std::byte> bytes) override;
  void EndSent() override;
  absl::Status Flush() override;
  bool has_unsent() const override;

  bool CanExpose(std::span<const std::byte> bytes) const override;
  absl::StatusOr<size_t> Expose(std::span<const std::byte> bytes) override;
  absl::StatusOr<uint64_t> num_exposed_read() override;

  absl::StatusOr<std::span<const std::byte>> Peek(size_t least, size_t most) override;
  void Consume(size_t num_bytes) override;
  absl::StatusOr<size_t> Receive(std::span<std::byte> into) override;
  void EndReceived() override;

  void Arm(LinkWants wants) override;
  void Disarm() override;
  pollfd WaitFor(LinkWants wants) const override;
  void OnReady(short events) override;
  bool is_cheap_to_try() const override { return true; }

 private:
  // Unread bytes: in this end's ring by the peer, and in the peer's ring by this end. kDataLoss:
  // the peer's counts are impossible.
  absl::StatusOr<size_t> OutgoingBytes();
  absl::StatusOr<size_t> IncomingBytes();
  // The peer's next range, if it comes before `end` in the incoming bytes. kDataLoss likewise.
  absl::StatusOr<std::optional<ExposedRange>> NextRange(uint64_t end) const;
  absl::StatusOr<std::span<const std::byte>> PeekRange(size_t least, size_t most);
  absl::Status Gone() const;
  void Wake(uint64_t waits);

  const Parts parts_;
  const std::span<std::byte> outgoing_;
  const std::span<const std::byte> incoming_;
  const std::span<const std::byte> arrays_;
  const std::span<const std::byte> peer_arrays_;
  RankCounts& counts_;
  const RankCounts& peer_counts_;

  uint64_t written_ = 0;  // a multiple of kRingAlignment between messages
  uint64_t read_ = 0;
  uint64_t peer_read_ = 0;    // as last seen
  uint64_t waits_ = 0;        // this end's, as in RankCounts
  uint64_t woken_ = 0;        // the peer's wait that was last ended
  bool has_written_ = false;  // since the last Flush
  bool has_read_ = false;
  bool is_peer_gone_ = false;
  std::vector<std::byte> across_;  // an element that wraps around the end of the ring

  uint64_t num_exposed_ranges_ = 0;
  uint64_t exposed_ = 0;            // bytes
  uint64_t peer_exposed_read_ = 0;  // as last seen
  // Of range i, at i modulo kExposedRangesMax: the bytes exposed up to its end.
  std::array<uint64_t, kExposedRangesMax> exposed_ends_{};
  // What this end has read of the peer's.
  uint64_t num_ranges_read_ = 0;
  uint64_t exposed_read_ = 0;               // bytes
  std::optional<ExposedRange> being_read_;  // what is left of it
  bool has_read_range_ = false;             // to its end, since the last Flush
};

}  // namespace pushpull
