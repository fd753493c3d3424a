// SPDX-License-Identifier: Apache-2.0
//
// A link between two ranks of one host: bytes are copied into a ring of shared memory, and the
// other end reduces them there, or copies them out. No system call but to wake an end that sleeps.
// The connection over which the two have met carries nothing more; its end says that the peer has
// gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
    FileDescriptor socket;    // does not block
  };
  explicit ShmLink(Parts parts);

  absl::StatusOr<size_t> Send(std::span<const std::byte> bytes) override;
  void EndSent() override;
  absl::Status Flush() override;
  bool has_unsent() const override { return false; }

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
  // Bytes in the ring of this end that the peer has not read; in the peer's ring that this end has
  // not. kDataLoss: the peer's counts cannot be.
  absl::StatusOr<size_t> OutgoingBytes();
  absl::StatusOr<size_t> IncomingBytes();
  absl::Status Gone() const;
  void Wake(uint64_t waits);

  const Parts parts_;
  const std::span<std::byte> outgoing_;
  const std::span<const std::byte> incoming_;
  RankCounts& counts_;
  const RankCounts& peer_counts_;

  uint64_t written_ = 0;  // a multiple of kRingAlignment but within the end of a message
  uint64_t read_ = 0;
  uint64_t peer_read_ = 0;    // as last seen
  uint64_t waits_ = 0;        // of this end
  uint64_t woken_ = 0;        // the peer's wait for which it was woken
  bool has_written_ = false;  // since the last Flush
  bool has_read_ = false;
  bool is_peer_gone_ = false;
  std::vector<std::byte> across_;  // an element that lies across the end of the ring
};

}  // namespace pushpull
