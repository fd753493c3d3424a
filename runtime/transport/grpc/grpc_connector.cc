// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/grpc_connector.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/tls/grpc_credentials.h"
#include "runtime/transport/grpc/client_wire.h"
#include "runtime/transport/grpc/grpc_channel.h"
#include "runtime/transport/hello.h"

namespace pushpull {

GrpcConnector::GrpcConnector(EventLoop& loop,
                             const GrpcOptions& options,
                             ConnectRequest request,
                             ConnectDone done)
    : loop_(loop),
      options_(options),
      request_(std::move(request)),
      peer_(absl::StrCat(request_.peer_name, " at ", request_.address)),
      done_(std::move(done)) {}

void GrpcConnector::Begin(InFlight& in_flight) {
  timer_ = loop_.RunAt(request_.deadline.when(), [self = shared_from_this()] {
    self->Fail(absl::DeadlineExceededError("no connection in time"));
  });
  const std::shared_ptr<Wire> wire =
      MakeClientWire(request_.address, request_.deadline.remaining(), options_, in_flight);
  stream_ =
      std::make_shared<GrpcStream>(loop_,
                                   wire,
                                   StreamSettings{.side = StreamSide::kConnecting,
                                                  .peer = peer_,
                                                  .frames_max = options_.send_queue_frames_max},
                                   in_flight);
  wire->Start(stream_);
  stream_->Send({.header = {.type = FrameType::kHello,
                            .worker = request_.hello.worker,
                            .incarnation = request_.hello.incarnation},
                 .meta = EncodeHello({.hello = request_.hello,
                                      .host = options_.host,
                                      .payload_checksums = options_.payload_checksums,
                                      .shm = std::nullopt}),
                 .payload = {}});
  stream_->Start(*this);
}

void GrpcConnector::OnFrame(const ReceivedFrame& frame) {
  if (frame.header.type != FrameType::kHelloAck)
    return Fail(absl::DataLossError("answered a hello with something else"));
  const absl::StatusOr<HelloAckMeta> ack = DecodeHelloAck(frame.meta);
  if (!ack.ok()) return Fail(ack.status());
  if (!ack->admitted.ok()) return Fail(ack->admitted);
  Finish(MakeChannel(frame, *ack));
}

void GrpcConnector::OnClosed(const absl::Status& why) {
  Finish(ExplainNoAnswer(why, options_.tls != nullptr));
}

std::unique_ptr<Channel> GrpcConnector::MakeChannel(const ReceivedFrame& ack_frame,
                                                    const HelloAckMeta& ack) {
  stream_->Pause();
  stream_->SetPayloadChecksums(ack.has_payload_checksums);
  const auto at = [](int64_t ns) { return SteadyTime(std::chrono::nanoseconds(ns)); };
  ClockEstimate clock;
  clock.Add({.sent = at(ack.hello_sent_at),
             .peer_received = at(ack.hello_received_at),
             .peer_sent = at(ack_frame.header.sent_at),
             .received = ack_frame.received_at});
  const bool is_same_host = ack.host == options_.host;
  return std::make_unique<GrpcChannel>(
      std::exchange(stream_, nullptr),
      PeerClock(is_same_host ? PeerClock::Role::kShared : PeerClock::Role::kMeasures,
                std::move(clock)));
}

void GrpcConnector::Fail(const absl::Status& why) {
  Finish(absl::Status(why.code(), absl::StrCat(peer_, ": ", why.message())));
}

void GrpcConnector::Finish(absl::StatusOr<std::unique_ptr<Channel>> result) {
  if (!done_) return;
  const std::shared_ptr<GrpcConnector> self = shared_from_this();  // the timer may be the last
  loop_.Cancel(timer_);
  if (stream_ != nullptr) stream_->Close();
  std::exchange(done_, nullptr)(std::move(result));
}

}  // namespace pushpull
