// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/stream/stream_connector.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/transport/stream/stream_channel.h"

namespace pushpull {

StreamConnector::StreamConnector(EventLoop& loop,
                                 const TransportOptions& options,
                                 ConnectRequest request,
                                 ConnectDone done)
    : loop_(loop),
      options_(options),
      request_(std::move(request)),
      peer_(absl::StrCat(request_.peer_name, " at ", request_.address)),
      done_(std::move(done)) {}

void StreamConnector::Begin() {
  timer_ = loop_.RunAt(request_.deadline.when(), [self = shared_from_this()] {
    self->Fail(absl::DeadlineExceededError("no connection in time"));
  });
}

void StreamConnector::SendHello(std::shared_ptr<FrameStream> stream) {
  stream_ = std::move(stream);
  stream_->Send({.header = {.type = FrameType::kHello,
                            .worker = request_.hello.worker,
                            .incarnation = request_.hello.incarnation},
                 .meta = EncodeHello({.hello = request_.hello,
                                      .host = options_.host,
                                      .payload_checksums = options_.payload_checksums,
                                      .shm = stream_->OfferSharedMemory()}),
                 .payload = {}});
  stream_->Start(*this);
}

void StreamConnector::OnFrame(const ReceivedFrame& frame) {
  if (frame.header.type != FrameType::kHelloAck)
    return Fail(absl::DataLossError("answered a hello with something else"));
  const absl::StatusOr<HelloAckMeta> ack = DecodeHelloAck(frame.meta);
  if (!ack.ok()) return Fail(ack.status());
  if (!ack->admitted.ok()) return Fail(ack->admitted);
  const absl::Status answered = CheckServer();
  if (!answered.ok()) return Fail(answered);
  const absl::Status used = stream_->UseSharedMemory(*ack);
  if (!used.ok()) return Fail(used);
  Finish(MakeChannel(frame, *ack));
}

// Another member may have taken over this address: the next address may be right.
absl::Status StreamConnector::CheckServer() const {
  if (!request_.server) return absl::OkStatus();
  PUSHPULL_ASSIGN_OR_RETURN(const PeerIdentity peer, stream_->identity());
  const absl::Status is_server = peer.CheckIs(ToString(*request_.server));
  return is_server.ok() ? is_server : absl::UnavailableError(is_server.message());
}

std::unique_ptr<Channel> StreamConnector::MakeChannel(const ReceivedFrame& ack_frame,
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
  return std::make_unique<StreamChannel>(
      std::exchange(stream_, nullptr),
      PeerClock(is_same_host ? PeerClock::Role::kShared : PeerClock::Role::kMeasures,
                std::move(clock)));
}

void StreamConnector::Fail(const absl::Status& why) {
  Finish(absl::Status(why.code(), absl::StrCat(peer_, ": ", why.message())));
}

void StreamConnector::Finish(absl::StatusOr<std::unique_ptr<Channel>> result) {
  if (!done_) return;
  // The timer, which is cancelled here, may hold the last reference.
  const std::shared_ptr<StreamConnector> self = shared_from_this();
  loop_.Cancel(timer_);
  StopDialing();
  if (stream_ != nullptr) stream_->Close();
  std::exchange(done_, nullptr)(std::move(result));
}

}  // namespace pushpull
