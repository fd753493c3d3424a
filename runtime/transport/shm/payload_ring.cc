// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shm/payload_ring.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/transport/frame.h"

namespace pushpull {
namespace {

// Each payload begins on its own cache line.
constexpr size_t kRingAlignment = 64;

constexpr uint64_t kCreditMin = size_t{1} << 20;

// A sender cannot wait forever. It waits only while less is free than a payload takes, which
// including the unused end is below twice the largest. Everything it has sent will be read, and the
// receiver holds back less than kCreditMin of that, so enough becomes free.
static_assert(kPayloadRingBytes >= 2 * kFramePayloadBytesMax + kCreditMin);
static_assert(kPayloadRingBytes % kRingAlignment == 0);

}  // namespace

PayloadPositions::Place PayloadPositions::Next(size_t num_bytes) const {
  const size_t rounded = (num_bytes + kRingAlignment - 1) / kRingAlignment * kRingAlignment;
  const size_t left = kPayloadRingBytes - position_;
  if (rounded <= left) return {.offset = position_, .num_taken = rounded};
  return {.offset = 0, .num_taken = left + rounded};
}

void PayloadPositions::Take(const Place& place) {
  position_ = (position_ + place.num_taken) % kPayloadRingBytes;
}

bool PayloadRingWriter::Fits(size_t num_bytes) const {
  return num_bytes == 0 || positions_.Next(num_bytes).num_taken <= kPayloadRingBytes - num_used_;
}

void PayloadRingWriter::Write(std::span<const std::byte> payload) {
  if (payload.empty()) return;
  PUSHPULL_CHECK(Fits(payload.size()));
  std::memcpy(
      memory_.data() + positions_.Next(payload.size()).offset, payload.data(), payload.size());
  Skip(payload.size());
}

void PayloadRingWriter::Skip(size_t num_bytes) {
  PUSHPULL_CHECK(num_bytes > 0 && Fits(num_bytes));
  const PayloadPositions::Place place = positions_.Next(num_bytes);
  positions_.Take(place);
  num_used_ += place.num_taken;
}

absl::Status PayloadRingWriter::AddCredit(uint64_t num_bytes) {
  if (num_bytes > num_used_) {
    return absl::DataLossError(absl::StrCat(
        "returned ", num_bytes, " bytes of credit, of ", num_used_, " that it was sent"));
  }
  num_used_ -= num_bytes;
  return absl::OkStatus();
}

void PayloadRingReader::Read(size_t num_bytes, std::span<std::byte> to) {
  PUSHPULL_CHECK(num_bytes <= kFramePayloadBytesMax && (to.empty() || to.size() == num_bytes));
  if (!to.empty())
    std::memcpy(to.data(), memory_.data() + positions_.Next(num_bytes).offset, num_bytes);
  Skip(num_bytes);
}

void PayloadRingReader::Skip(size_t num_bytes) {
  PUSHPULL_CHECK(num_bytes <= kFramePayloadBytesMax);
  const PayloadPositions::Place place = positions_.Next(num_bytes);
  positions_.Take(place);
  num_read_ += place.num_taken;
}

uint64_t PayloadRingReader::TakeCredit() {
  return num_read_ < kCreditMin ? 0 : std::exchange(num_read_, 0);
}

}  // namespace pushpull
