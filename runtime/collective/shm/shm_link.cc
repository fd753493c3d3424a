// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/shm/shm_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr uint64_t kWaitsForBytes = 1;
constexpr uint64_t kWaitsForRoom = 2;
constexpr uint64_t kOneWait = 4;

uint64_t Padded(uint64_t count) {
  return (count + kRingAlignment - 1) / kRingAlignment * kRingAlignment;
}

}  // namespace

ShmLink::ShmLink(Parts parts)
    : parts_(std::move(parts)),
      outgoing_(parts_.own->Ring(parts_.peer)),
      incoming_(parts_.neighbour.Ring()),
      counts_(parts_.own->Counts(parts_.peer)),
      peer_counts_(parts_.neighbour.Counts()) {}

absl::StatusOr<size_t> ShmLink::OutgoingBytes() {
  const uint64_t peer_read = LoadShared(peer_counts_.read);
  if (peer_read < peer_read_ || peer_read > written_)
    return absl::DataLossError("has read what was not written: its shared memory is corrupt");
  peer_read_ = peer_read;
  return written_ - peer_read;
}

absl::StatusOr<size_t> ShmLink::IncomingBytes() {
  const uint64_t written = LoadShared(peer_counts_.written);
  // The padding of a message that was just read to its end is counted a moment later.
  if (written < read_ && read_ - written < kRingAlignment) return 0;
  const uint64_t available = written - read_;
  if (available > kRankRingBytes)
    return absl::DataLossError("has written what does not fit: its shared memory is corrupt");
  return available;
}

absl::Status ShmLink::Gone() const {
  return absl::UnavailableError("has closed the link: its call has failed, or its process is gone");
}

absl::StatusOr<size_t> ShmLink::Send(std::span<const std::byte> bytes) {
  if (is_peer_gone_) return Gone();
  PUSHPULL_ASSIGN_OR_RETURN(const size_t used, OutgoingBytes());
  // In whole cache lines, so that the padding at the message's end fits as well.
  const size_t room = (kRankRingBytes - used) / kRingAlignment * kRingAlignment;
  const size_t count = std::min({bytes.size(), room, kRankRingPartBytes});
  if (count == 0) return 0;
  const size_t offset = written_ % kRankRingBytes;
  const size_t until_end = std::min(count, kRankRingBytes - offset);
  std::memcpy(outgoing_.data() + offset, bytes.data(), until_end);
  std::memcpy(outgoing_.data(), bytes.data() + until_end, count - until_end);
  written_ += count;
  StoreShared(counts_.written, written_);
  has_written_ = true;
  return count;
}

void ShmLink::EndSent() {
  written_ = Padded(written_);
  StoreShared(counts_.written, written_);
}

absl::Status ShmLink::Flush() {
  if (!has_written_ && !has_read_) return absl::OkStatus();
  // Either this end sees that the peer waits, or the peer, which checks once more after announcing
  // its wait, sees the new counts: StoreShared.
  const uint64_t waits = LoadShared(peer_counts_.waits);
  if (has_written_ && (waits & kWaitsForBytes) != 0) Wake(waits);
  if (has_read_ && (waits & kWaitsForRoom) != 0) {
    // Wakes the peer once half of the ring is free, not for each part.
    PUSHPULL_ASSIGN_OR_RETURN(const size_t left, IncomingBytes());
    if (left <= kRankRingBytes / 2) Wake(waits);
  }
  has_written_ = has_read_ = false;
  return absl::OkStatus();
}

void ShmLink::Wake(uint64_t waits) {
  const uint64_t wait = waits / kOneWait;
  if (woken_ == wait) return;
  woken_ = wait;
  const uint64_t one = 1;
  // Fails only if the peer's doorbell is full, and then it rings anyway.
  [[maybe_unused]] const ssize_t rung = write(parts_.doorbell.get(), &one, sizeof one);
}

absl::StatusOr<std::span<const std::byte>> ShmLink::Peek(size_t least, size_t most) {
  PUSHPULL_ASSIGN_OR_RETURN(const size_t available, IncomingBytes());
  if (available < least) {
    if (is_peer_gone_) return Gone();
    return std::span<const std::byte>();
  }
  const size_t offset = read_ % kRankRingBytes;
  const size_t in_one_piece = std::min(available, kRankRingBytes - offset);
  if (in_one_piece >= least)
    return incoming_.subspan(offset,
                             std::min({in_one_piece, std::max(most, least), kRankRingPartBytes}));
  across_.resize(least);
  std::memcpy(across_.data(), incoming_.data() + offset, in_one_piece);
  std::memcpy(across_.data() + in_one_piece, incoming_.data(), least - in_one_piece);
  return std::span<const std::byte>(across_);
}

void ShmLink::Consume(size_t num_bytes) {
  read_ += num_bytes;
  StoreShared(counts_.read, read_);
  has_read_ = true;
}

absl::StatusOr<size_t> ShmLink::Receive(std::span<std::byte> into) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Peek(1, into.size()));
  if (bytes.empty()) return 0;
  std::memcpy(into.data(), bytes.data(), bytes.size());
  Consume(bytes.size());
  return bytes.size();
}

void ShmLink::EndReceived() {
  read_ = Padded(read_);
  StoreShared(counts_.read, read_);
}

void ShmLink::Arm(LinkWants wants) {
  const uint64_t bits = (wants.bytes ? kWaitsForBytes : 0) | (wants.room ? kWaitsForRoom : 0);
  if (bits == 0) return;
  waits_ = (waits_ / kOneWait + 1) * kOneWait;
  StoreShared(counts_.waits, waits_ | bits);
}

void ShmLink::Disarm() {
  StoreShared(counts_.waits, waits_);
}

pollfd ShmLink::WaitFor(LinkWants wants) const {
  const bool is_of_interest = wants.bytes || wants.room;
  return {.fd = is_of_interest ? parts_.socket.get() : -1, .events = POLLIN, .revents = 0};
}

void ShmLink::OnReady(short events) {
  if (events == 0) return;
  // Nothing is ever sent over the socket.
  is_peer_gone_ = true;
}

}  // namespace pushpull
