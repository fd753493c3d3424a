// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/stream/inbound_handshake.h"

#include "absl/strings/str_cat.h"

#include "runtime/transport/stream/stream_channel.h"

namespace pushpull {
namespace {

// On the lane's own thread, which sends the answer: from here on that thread alone has the stream.
void MakeChannel(AcceptContext& context,
                 const std::shared_ptr<FrameStream>& stream,
                 const HelloMeta& message,
                 const HelloAckMeta& ack) {
  OutgoingFrame answer{
      .header = {.type = FrameType::kHelloAck}, .meta = EncodeHelloAck(ack), .payload = {}};
  if (!ack.admitted.ok()) return stream->CloseAfter(std::move(answer));
  stream->Send(std::move(answer));
  stream->SetPayloadChecksums(ack.has_payload_checksums);
  const bool is_same_host = message.host == context.options.host;
  const auto role = is_same_host ? PeerClock::Role::kShared : PeerClock::Role::kFollows;
  auto channel = std::make_unique<StreamChannel>(stream, PeerClock(role, ClockEstimate()));
  context.gate.Enter(
      [&](ChannelAcceptor& acceptor) { acceptor.OnChannel(message.hello, std::move(channel)); });
}

}  // namespace

InboundHandshake::InboundHandshake(std::shared_ptr<AcceptContext> context,
                                   std::shared_ptr<FrameStream> stream,
                                   std::function<void()> on_end)
    : context_(std::move(context)), stream_(std::move(stream)), on_end_(std::move(on_end)) {}

void InboundHandshake::Start() {
  const Duration timeout = context_->options.handshake_timeout;
  timer_ = stream_->loop().RunAfter(timeout, [this, timeout] {
    Reject(absl::DeadlineExceededError(absl::StrCat("no hello within ", ToSeconds(timeout), " s")));
  });
  stream_->Start(*this);
}

void InboundHandshake::Abandon() {
  stream_->loop().Cancel(timer_);
  stream_->Close();
}

void InboundHandshake::Reject(const absl::Status& why) {
  Report(absl::Status(why.code(), absl::StrCat(stream_->peer(), ": ", why.message())));
}

void InboundHandshake::Report(const absl::Status& why) {
  const std::shared_ptr<InboundHandshake> self = shared_from_this();
  Abandon();
  on_end_();
  context_->gate.Enter([&](ChannelAcceptor& acceptor) { acceptor.OnRejected(why); });
}

void InboundHandshake::OnFrame(const ReceivedFrame& frame) {
  if (frame.header.type != FrameType::kHello)
    return Reject(absl::DataLossError("the first frame is not a hello"));
  const absl::StatusOr<HelloMeta> message = DecodeHello(frame.meta);
  if (!message.ok()) return Reject(message.status());
  HelloAckMeta ack = Answer(frame, *message, Judge(message->hello));
  if (message->shm && ack.admitted.ok()) stream_->AttachSharedMemory(*message, ack);
  HandOver(*message, ack);
}

absl::Status InboundHandshake::Judge(const Hello& hello) {
  absl::Status verdict = absl::UnavailableError("no longer listens");
  context_->gate.Enter([&](ChannelAcceptor& acceptor) { verdict = acceptor.Admit(hello); });
  if (verdict.ok() && hello.lane >= context_->loops.size())
    return absl::InvalidArgumentError(absl::StrCat("there is no lane ", hello.lane));
  return verdict;
}

HelloAckMeta InboundHandshake::Answer(const ReceivedFrame& frame,
                                      const HelloMeta& message,
                                      absl::Status verdict) {
  const TransportOptions& options = context_->options;
  const auto received_at = frame.received_at.time_since_epoch();
  return {.admitted = std::move(verdict),
          .lane_count = static_cast<uint32_t>(context_->loops.size()),
          .host = options.host,
          .has_payload_checksums = AgreeOnPayloadChecksums(
              options.payload_checksums, message.payload_checksums, message.host == options.host),
          .hello_sent_at = frame.header.sent_at,
          .hello_received_at =
              std::chrono::duration_cast<std::chrono::nanoseconds>(received_at).count()};
}

void InboundHandshake::HandOver(const HelloMeta& message, const HelloAckMeta& ack) {
  EventLoop& loop = *context_->loops[ack.admitted.ok() ? message.hello.lane : 0];
  const absl::StatusOr<std::shared_ptr<FrameStream>> stream =
      stream_->MoveTo(loop, absl::StrCat(PeerName(message.hello), " at ", stream_->peer()));
  if (!stream.ok()) return Reject(stream.status());
  loop.Post([context = context_, stream = *stream, message, ack] {
    MakeChannel(*context, stream, message, ack);
  });
  const std::shared_ptr<InboundHandshake> self = shared_from_this();
  Abandon();
  on_end_();
}

}  // namespace pushpull
