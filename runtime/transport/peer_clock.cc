// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/peer_clock.h"

#include <algorithm>

#include "runtime/base/wire_bytes.h"

namespace pushpull {
namespace {

SteadyTime AtNanoseconds(int64_t nanoseconds) {
  return SteadyTime(std::chrono::nanoseconds(nanoseconds));
}

}  // namespace

void ClockEstimate::Add(const ClockSample& sample) {
  const Duration there = sample.peer_received - sample.sent;
  const Duration back = sample.peer_sent - sample.received;
  measurements_.push_back({.round_trip = there - back, .offset = (there + back) / 2});
  if (measurements_.size() > kSamplesKept) measurements_.pop_front();
}

Duration ClockEstimate::offset() const {
  if (measurements_.empty()) return Duration::zero();
  return std::ranges::min_element(measurements_, {}, &Measurement::round_trip)->offset;
}

PeerClock::PeerClock(Role role, ClockEstimate estimate)
    : role_(role),
      estimate_(std::move(estimate)),
      offset_(role == Role::kMeasures ? estimate_.offset() : Duration::zero()) {}

std::optional<OutgoingFrame> PeerClock::Ping() {
  if (std::exchange(is_ping_pending_, true)) return std::nullopt;
  return OutgoingFrame{.header = {.type = FrameType::kPing},
                       .meta = BytesOf(int64_t{std::chrono::nanoseconds(offset_).count()}),
                       .payload = {}};
}

OutgoingFrame PeerClock::Answer(const ReceivedFrame& ping) {
  ByteReader reader(ping.meta);
  const std::chrono::nanoseconds our_offset(reader.Get<int64_t>());
  if (reader.ok() && role_ == Role::kFollows) offset_ = -our_offset;
  return {.header = {.type = FrameType::kPong},
          .meta = BytesOf(ping.header.sent_at, NanosecondsOf(ping.received_at)),
          .payload = {}};
}

void PeerClock::TakePong(const ReceivedFrame& pong) {
  is_ping_pending_ = false;
  ByteReader reader(pong.meta);
  const SteadyTime sent = AtNanoseconds(reader.Get<int64_t>());
  const SteadyTime peer_received = AtNanoseconds(reader.Get<int64_t>());
  if (!reader.ok() || role_ != Role::kMeasures) return;
  estimate_.Add({.sent = sent,
                 .peer_received = peer_received,
                 .peer_sent = AtNanoseconds(pong.header.sent_at),
                 .received = pong.received_at});
  offset_ = estimate_.offset();
}

}  // namespace pushpull
