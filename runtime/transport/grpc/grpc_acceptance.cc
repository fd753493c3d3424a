// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/grpc_acceptance.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/transport/grpc/grpc_channel.h"

namespace pushpull {
namespace {

// What the lane's loop needs to take a stream over.
struct HandedOver {
  std::shared_ptr<GrpcReception> reception;
  std::shared_ptr<Wire> wire;
  std::string peer;
  Hello hello;
  HelloAckMeta ack;
  bool is_same_host = false;
};

std::shared_ptr<GrpcStream> MakeStream(const GrpcReception& reception,
                                       EventLoop& loop,
                                       const std::shared_ptr<Wire>& wire,
                                       std::string peer) {
  return std::make_shared<GrpcStream>(
      loop,
      wire,
      StreamSettings{.side = StreamSide::kAccepting,
                     .peer = std::move(peer),
                     .frames_max = reception.options.send_queue_frames_max},
      reception.in_flight);
}

// The lane's own thread answers the hello, so that it owns everything from there on.
void TakeOver(EventLoop& loop, HandedOver& from) {
  const std::shared_ptr<GrpcStream> stream =
      MakeStream(*from.reception, loop, from.wire, from.peer);
  from.wire->Start(stream);
  OutgoingFrame ack{
      .header = {.type = FrameType::kHelloAck}, .meta = EncodeHelloAck(from.ack), .payload = {}};
  if (!from.ack.admitted.ok()) return stream->CloseWith(std::move(ack));
  stream->Send(std::move(ack));
  stream->SetPayloadChecksums(from.ack.has_payload_checksums);
  const auto role = from.is_same_host ? PeerClock::Role::kShared : PeerClock::Role::kIsTold;
  auto channel = std::make_unique<GrpcChannel>(stream, PeerClock(role, ClockEstimate()));
  from.reception->gate.Enter(
      [&](ChannelAcceptor& acceptor) { acceptor.OnChannel(from.hello, std::move(channel)); });
}

}  // namespace

GrpcAcceptance::GrpcAcceptance(std::shared_ptr<GrpcReception> reception,
                               const std::shared_ptr<Wire>& wire,
                               std::function<void()> on_end)
    : reception_(std::move(reception)),
      wire_(wire),
      stream_(MakeStream(*reception_, *reception_->loops.front(), wire, wire->peer())),
      on_end_(std::move(on_end)) {}

void GrpcAcceptance::Start() {
  const Duration timeout = reception_->options.handshake_timeout;
  timer_ = stream_->loop().RunAfter(timeout, [this, timeout] {
    Reject(absl::DeadlineExceededError(absl::StrCat("no hello within ", ToSeconds(timeout), " s")));
  });
  wire_->Start(stream_);
  stream_->Start(*this);
}

void GrpcAcceptance::Abandon() {
  stream_->loop().Cancel(timer_);
  stream_->Close();
}

void GrpcAcceptance::Reject(const absl::Status& why) {
  Report(absl::Status(why.code(), absl::StrCat(stream_->peer(), ": ", why.message())));
}

void GrpcAcceptance::Report(const absl::Status& why) {
  const std::shared_ptr<GrpcAcceptance> self = shared_from_this();
  Abandon();
  on_end_();
  reception_->gate.Enter([&](ChannelAcceptor& acceptor) { acceptor.OnRejected(why); });
}

void GrpcAcceptance::OnFrame(const ReceivedFrame& frame) {
  if (frame.header.type != FrameType::kHello)
    return Reject(absl::DataLossError("the first frame is no hello"));
  const absl::StatusOr<HelloMeta> message = DecodeHello(frame.meta);
  if (!message.ok()) return Reject(message.status());
  HandOver(*message, Answer(frame, *message, Judge(message->hello)));
}

absl::Status GrpcAcceptance::Judge(const Hello& hello) {
  absl::Status verdict = absl::UnavailableError("does not listen any more");
  reception_->gate.Enter([&](ChannelAcceptor& acceptor) { verdict = acceptor.Admit(hello); });
  if (verdict.ok() && hello.lane >= reception_->loops.size())
    return absl::InvalidArgumentError(absl::StrCat("there is no lane ", hello.lane));
  return verdict;
}

HelloAckMeta GrpcAcceptance::Answer(const ReceivedFrame& frame,
                                    const HelloMeta& message,
                                    absl::Status verdict) {
  const GrpcOptions& options = reception_->options;
  const auto received_at = frame.received_at.time_since_epoch();
  return {.admitted = std::move(verdict),
          .lane_count = static_cast<uint32_t>(reception_->loops.size()),
          .host = options.host,
          .has_payload_checksums = AgreeOnPayloadChecksums(
              options.payload_checksums, message.payload_checksums, message.host == options.host),
          .hello_sent_at = frame.header.sent_at,
          .hello_received_at =
              std::chrono::duration_cast<std::chrono::nanoseconds>(received_at).count(),
          // Shared memory is the tcp channel's.
          .shm_attached = absl::FailedPreconditionError("it uses gRPC")};
}

void GrpcAcceptance::HandOver(const HelloMeta& message, const HelloAckMeta& ack) {
  if (stream_->has_unread())
    return Reject(absl::DataLossError("sent more before its hello was answered"));
  const auto handed_over = std::make_shared<HandedOver>(
      HandedOver{.reception = reception_,
                 .wire = stream_->ReleaseWire(),
                 .peer = absl::StrCat(PeerName(message.hello), " at ", stream_->peer()),
                 .hello = message.hello,
                 .ack = ack,
                 .is_same_host = message.host == reception_->options.host});
  EventLoop& loop = *reception_->loops[ack.admitted.ok() ? message.hello.lane : 0];
  loop.Post([handed_over, &loop] { TakeOver(loop, *handed_over); });
  const std::shared_ptr<GrpcAcceptance> self = shared_from_this();
  Abandon();
  on_end_();
}

}  // namespace pushpull
