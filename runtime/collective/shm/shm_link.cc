// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/shm/shm_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
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
      arrays_(parts_.own->arrays() == nullptr ? std::span<const std::byte>()
                                              : parts_.own->arrays()->bytes()),
      peer_arrays_(parts_.neighbour.Arrays()),
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

bool ShmLink::CanExpose(std::span<const std::byte> bytes) const {
  const std::less_equal<const std::byte*> is_at_most;
  return !arrays_.empty() && is_at_most(arrays_.data(), bytes.data()) &&
         is_at_most(bytes.data() + bytes.size(), arrays_.data() + arrays_.size());
}

absl::StatusOr<size_t> ShmLink::Expose(std::span<const std::byte> bytes) {
  PUSHPULL_ASSIGN_OR_RETURN(const uint64_t read, num_exposed_read());
  const size_t slot = num_exposed_ranges_ % kExposedRangesMax;
  const bool is_slot_free = num_exposed_ranges_ < kExposedRangesMax || exposed_ends_[slot] <= read;
  if (bytes.empty() || !is_slot_free) return 0;
  ExposedRange& range = counts_.exposed[slot];
  StoreShared(range.at, written_);
  StoreShared(range.offset, static_cast<uint64_t>(bytes.data() - arrays_.data()));
  StoreShared(range.num_bytes, bytes.size());
  exposed_ += bytes.size();
  exposed_ends_[slot] = exposed_;
  StoreShared(counts_.num_exposed_ranges, ++num_exposed_ranges_);
  has_written_ = true;
  return bytes.size();
}

absl::StatusOr<uint64_t> ShmLink::num_exposed_read() {
  const uint64_t read = LoadShared(peer_counts_.exposed_read);
  if (read < peer_exposed_read_ || read > exposed_)
    return absl::DataLossError("has read what was not exposed: its shared memory is corrupt");
  peer_exposed_read_ = read;
  // A peer that has read everything may leave.
  if (is_peer_gone_ && read < exposed_) return Gone();
  return read;
}

bool ShmLink::has_unsent() const {
  return LoadShared(peer_counts_.exposed_read) != exposed_;
}

absl::Status ShmLink::Flush() {
  if (!has_written_ && !has_read_) return absl::OkStatus();
  // Either this end sees that the peer waits, or the peer, which checks once more after announcing
  // its wait, sees the new counts: StoreShared.
  const uint64_t waits = LoadShared(peer_counts_.waits);
  if (has_written_ && (waits & kWaitsForBytes) != 0) Wake(waits);
  if (has_read_ && (waits & kWaitsForRoom) != 0) {
    // Wakes the peer once half of the ring is free, or a range is read, not for each part.
    PUSHPULL_ASSIGN_OR_RETURN(const size_t left, IncomingBytes());
    if (has_read_range_ || (!being_read_ && left <= kRankRingBytes / 2)) Wake(waits);
  }
  has_written_ = has_read_ = has_read_range_ = false;
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

absl::StatusOr<std::optional<ExposedRange>> ShmLink::NextRange(uint64_t end) const {
  const uint64_t exposed = LoadShared(peer_counts_.num_exposed_ranges);
  if (exposed == num_ranges_read_) return std::nullopt;
  const ExposedRange& shared = peer_counts_.exposed[num_ranges_read_ % kExposedRangesMax];
  const ExposedRange range = {.at = LoadShared(shared.at),
                              .offset = LoadShared(shared.offset),
                              .num_bytes = LoadShared(shared.num_bytes)};
  if (range.at > end) return std::nullopt;
  const bool is_possible = exposed > num_ranges_read_ &&
                           exposed - num_ranges_read_ <= kExposedRangesMax && range.at >= read_ &&
                           range.num_bytes > 0 && range.num_bytes <= peer_arrays_.size() &&
                           range.offset <= peer_arrays_.size() - range.num_bytes;
  if (is_possible) return range;
  return absl::DataLossError("exposes what its arrays do not have: its shared memory is corrupt");
}

absl::StatusOr<std::span<const std::byte>> ShmLink::PeekRange(size_t least, size_t most) {
  if (being_read_->num_bytes < least)
    return absl::DataLossError("exposes part of an element: its shared memory is corrupt");
  const size_t wanted = std::min(std::max(most, least), kRankRingPartBytes);
  return peer_arrays_.subspan(being_read_->offset,
                              std::min<uint64_t>(being_read_->num_bytes, wanted));
}

absl::StatusOr<std::span<const std::byte>> ShmLink::Peek(size_t least, size_t most) {
  if (being_read_) return PeekRange(least, most);
  // In this order: a range that comes before these bytes was exposed before they were written.
  PUSHPULL_ASSIGN_OR_RETURN(size_t available, IncomingBytes());
  PUSHPULL_ASSIGN_OR_RETURN(const std::optional<ExposedRange> range, NextRange(read_ + available));
  if (range && range->at == read_) {
    being_read_ = range;
    return PeekRange(least, most);
  }
  if (range) available = range->at - read_;
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
  if (being_read_) {
    exposed_read_ += num_bytes;
    StoreShared(counts_.exposed_read, exposed_read_);
    has_read_ = true;
    being_read_->offset += num_bytes;
    being_read_->num_bytes -= num_bytes;
    if (being_read_->num_bytes > 0) return;
    being_read_.reset();
    ++num_ranges_read_;
    has_read_range_ = true;
    return;
  }
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
