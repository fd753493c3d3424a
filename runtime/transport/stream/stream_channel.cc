// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/stream/stream_channel.h"

namespace pushpull {
namespace {

// All other types are exchanged by the channels themselves.
bool IsForHandler(FrameType type) {
  return type >= FrameType::kInit && type != FrameType::kCredit && type != FrameType::kRegion;
}

}  // namespace

void StreamChannel::Start(FrameHandler& handler) {
  handler_ = &handler;
  stream_->Start(*this);
  if (clock_.role() == PeerClock::Role::kMeasures) Ping();
}

void StreamChannel::Close() {
  StopPings();
  stream_->Close();
}

std::span<std::byte> StreamChannel::PayloadBuffer(const FrameHeader& header) {
  if (!IsForHandler(header.type)) return {};
  return handler_->PayloadBuffer(*this, header);
}

bool StreamChannel::TakesInPlace(const FrameHeader& header) {
  return IsForHandler(header.type) && handler_->TakesInPlace(*this, header);
}

void StreamChannel::OnFrame(const ReceivedFrame& frame) {
  switch (frame.header.type) {
    case FrameType::kPing:
      return Send(clock_.Answer(frame));
    case FrameType::kPong:
      return clock_.TakePong(frame);
    case FrameType::kCredit:
    case FrameType::kRegion: {
      const absl::Status taken = stream_->TakeMemoryFrame(frame);
      if (!taken.ok()) stream_->Fail(taken);
      return;
    }
    case FrameType::kHello:
    case FrameType::kHelloAck:
      return stream_->Fail(absl::DataLossError("sent a second hello"));
    default:
      return handler_->OnFrame(*this, frame);
  }
}

void StreamChannel::OnPayloadLost(const FrameHeader& header) {
  if (IsForHandler(header.type)) handler_->OnPayloadLost(*this, header);
}

void StreamChannel::OnClosed(const absl::Status& why) {
  StopPings();
  handler_->OnClosed(*this, why);
}

void StreamChannel::Ping() {
  if (std::optional<OutgoingFrame> ping = clock_.Ping()) Send(*std::move(ping));
  ping_timer_ = stream_->loop().RunAfter(PeerClock::kPeriod, [this] { Ping(); });
}

void StreamChannel::StopPings() {
  if (ping_timer_ != 0) stream_->loop().Cancel(std::exchange(ping_timer_, 0));
}

}  // namespace pushpull
