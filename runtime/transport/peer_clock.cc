// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/peer_clock.h"

#include "runtime/base/wire_bytes.h"

namespace pushpull {
namespace {

int64_t Nanoseconds(SteadyTime time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

SteadyTime AtNanoseconds(int64_t nanoseconds) {
  return SteadyTime(std::chrono::nanoseconds(nanoseconds));
}

}  // namespace

PeerClock::PeerClock(Role role, ClockEstimate estimate)
    : role_(role),
      estimate_(std::move(estimate)),
      offset_(role == Role::kMeasures ? estimate_.offset() : Duration::zero()) {}

std::optional<OutgoingFrame> PeerClock::Ping() {
  if (std::exchange(is_ping_pending_, true)) return std::nullopt;
  ByteWriter meta;
  meta.Put(int64_t{std::chrono::nanoseconds(offset_).count()});
  return OutgoingFrame{.header = {.type = FrameType::kPing}, .meta = meta.Take(), .payload = {}};
}

OutgoingFrame PeerClock::Answer(const ReceivedFrame& ping) {
  ByteReader reader(ping.meta);
  const std::chrono::nanoseconds our_offset(reader.Get<int64_t>());
  if (reader.ok() && role_ == Role::kFollows) offset_ = -our_offset;
  ByteWriter meta;
  meta.Put(ping.header.sent_at);
  meta.Put(Nanoseconds(ping.received_at));
  return {.header = {.type = FrameType::kPong}, .meta = meta.Take(), .payload = {}};
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
