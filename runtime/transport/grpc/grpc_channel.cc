// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/grpc_channel.h"

namespace pushpull {
namespace {

// The others are between the channels themselves.
bool IsForHandler(FrameType type) {
  return type >= FrameType::kInit && type < FrameType::kCredit;
}

}  // namespace

GrpcChannel::GrpcChannel(std::shared_ptr<GrpcStream> stream, PeerClock clock)
    : stream_(std::move(stream)), clock_(std::move(clock)) {}

GrpcChannel::~GrpcChannel() {
  Close();
}

void GrpcChannel::Start(FrameHandler& handler) {
  handler_ = &handler;
  stream_->Start(*this);
  if (clock_.role() == PeerClock::Role::kMeasures) Ask();
}

void GrpcChannel::Close() {
  StopAsking();
  stream_->Close();
}

std::span<std::byte> GrpcChannel::PayloadBuffer(const FrameHeader& header) {
  if (!IsForHandler(header.type)) return {};
  return handler_->PayloadBuffer(*this, header);
}

void GrpcChannel::OnFrame(const ReceivedFrame& frame) {
  switch (frame.header.type) {
    case FrameType::kPing:
      return Send(clock_.Answer(frame));
    case FrameType::kPong:
      return clock_.TakeAnswer(frame);
    case FrameType::kCredit:
    case FrameType::kRegion:
      return stream_->Fail(absl::DataLossError("speaks of shared memory that there is not"));
    case FrameType::kHello:
    case FrameType::kHelloAck:
      return stream_->Fail(absl::DataLossError("sent a second hello"));
    default:
      return handler_->OnFrame(*this, frame);
  }
}

void GrpcChannel::OnPayloadLost(const FrameHeader& header) {
  if (IsForHandler(header.type)) handler_->OnPayloadLost(*this, header);
}

void GrpcChannel::OnClosed(const absl::Status& why) {
  StopAsking();
  handler_->OnClosed(*this, why);
}

void GrpcChannel::Ask() {
  if (std::optional<OutgoingFrame> ping = clock_.Ask()) Send(*std::move(ping));
  timer_ = stream_->loop().RunAfter(PeerClock::kPeriod, [this] { Ask(); });
}

void GrpcChannel::StopAsking() {
  if (timer_ != 0) stream_->loop().Cancel(std::exchange(timer_, 0));
}

}  // namespace pushpull
