// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/tcp_acceptance.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/transport/tcp/socket_address.h"
#include "runtime/transport/tcp/tcp_channel.h"

namespace pushpull {
namespace {

// What the lane's loop needs to take a connection over.
struct HandedOver {
  std::shared_ptr<TcpReception> reception;
  TcpStream stream;
  std::string peer;
  Hello hello;
  HelloAckMeta ack;
  bool is_same_host = false;
  std::optional<ShmSegment> segment;
};

std::shared_ptr<TcpConnection> MakeConnection(const TcpReception& reception,
                                              FileDescriptor socket) {
  const TcpOptions& options = reception.options;
  std::string peer = PeerAddress(socket.get());
  return std::make_shared<TcpConnection>(
      *reception.loops.front(),
      TcpStream(std::move(socket), CurrentIdentity(options.tls), TlsSide::kAccepting),
      std::move(peer),
      options.send_queue_frames_max);
}

// The lane's own thread answers the hello, so that it owns everything from there on.
void TakeOver(EventLoop& loop, HandedOver& from) {
  auto connection = std::make_shared<TcpConnection>(
      loop, std::move(from.stream), from.peer, from.reception->options.send_queue_frames_max);
  connection->Send(
      {.header = {.type = FrameType::kHelloAck}, .meta = EncodeHelloAck(from.ack), .payload = {}});
  if (!from.ack.admitted.ok()) return;  // the connection goes with the answer written
  connection->queue().SetPayloadChecksums(from.ack.has_payload_checksums);
  if (from.segment) connection->UseSharedMemory(*std::move(from.segment), ShmSide::kAccepting);
  const ClockRole role = from.is_same_host ? ClockRole::kShared : ClockRole::kIsTold;
  auto channel = std::make_unique<TcpChannel>(std::move(connection), role, ClockEstimate());
  from.reception->gate.Enter(
      [&](ChannelAcceptor& acceptor) { acceptor.OnChannel(from.hello, std::move(channel)); });
}

}  // namespace

TcpAcceptance::TcpAcceptance(std::shared_ptr<TcpReception> reception,
                             FileDescriptor socket,
                             std::function<void()> on_end)
    : reception_(std::move(reception)),
      connection_(MakeConnection(*reception_, std::move(socket))),
      on_end_(std::move(on_end)) {}

void TcpAcceptance::Start() {
  const Duration timeout = reception_->options.handshake_timeout;
  timer_ = connection_->loop().RunAfter(timeout, [this, timeout] {
    Reject(absl::DeadlineExceededError(absl::StrCat("no hello within ", ToSeconds(timeout), " s")));
  });
  connection_->Start(*this);
}

void TcpAcceptance::Abandon() {
  connection_->loop().Cancel(timer_);
  connection_->Close();
}

void TcpAcceptance::Reject(const absl::Status& why) {
  Report(absl::Status(why.code(), absl::StrCat(connection_->peer(), ": ", why.message())));
}

void TcpAcceptance::Report(const absl::Status& why) {
  const std::shared_ptr<TcpAcceptance> self = shared_from_this();
  Abandon();
  on_end_();
  reception_->gate.Enter([&](ChannelAcceptor& acceptor) { acceptor.OnRejected(why); });
}

void TcpAcceptance::OnFrame(const ReceivedFrame& frame) {
  if (frame.header.type != FrameType::kHello)
    return Reject(absl::DataLossError("the first frame is no hello"));
  const absl::StatusOr<HelloMeta> message = DecodeHello(frame.meta);
  if (!message.ok()) return Reject(message.status());
  HelloAckMeta ack = Answer(frame, *message, Judge(message->hello));
  AttachSharedMemory(*message, ack);
  HandOver(*message, ack);
}

absl::Status TcpAcceptance::Judge(const Hello& hello) {
  absl::Status verdict = absl::UnavailableError("does not listen any more");
  reception_->gate.Enter([&](ChannelAcceptor& acceptor) { verdict = acceptor.Admit(hello); });
  if (verdict.ok() && hello.lane >= reception_->loops.size())
    return absl::InvalidArgumentError(absl::StrCat("there is no lane ", hello.lane));
  return verdict;
}

HelloAckMeta TcpAcceptance::Answer(const ReceivedFrame& frame,
                                   const HelloMeta& message,
                                   absl::Status verdict) {
  const TcpOptions& options = reception_->options;
  const auto received_at = frame.received_at.time_since_epoch();
  return {.admitted = std::move(verdict),
          .lane_count = static_cast<uint32_t>(reception_->loops.size()),
          .host = options.host,
          .has_payload_checksums = AgreeOnPayloadChecksums(
              options.payload_checksums, message.payload_checksums, message.host == options.host),
          .hello_sent_at = frame.header.sent_at,
          .hello_received_at =
              std::chrono::duration_cast<std::chrono::nanoseconds>(received_at).count()};
}

void TcpAcceptance::AttachSharedMemory(const HelloMeta& message, HelloAckMeta& ack) {
  const TcpOptions& options = reception_->options;
  if (!message.shm || !ack.admitted.ok()) return;
  if (options.shm == nullptr) {
    ack.shm_attached = absl::FailedPreconditionError("it uses sockets only");
    return;
  }
  // A folder that two hosts share is no shared memory.
  if (message.host != options.host) {
    ack.shm_attached = absl::FailedPreconditionError("it is not on this host");
    return;
  }
  absl::StatusOr<ShmSegment> attached = options.shm->Attach(*message.shm);
  ack.shm_attached = attached.status();
  if (!attached.ok()) return;
  ack.shm_proof = attached->proof();
  segment_.emplace(*std::move(attached));
}

void TcpAcceptance::HandOver(const HelloMeta& message, const HelloAckMeta& ack) {
  absl::StatusOr<TcpStream> stream = connection_->ReleaseStream();
  if (!stream.ok()) return Reject(stream.status());
  const std::string peer = absl::StrCat(PeerName(message.hello), " at ", connection_->peer());
  const auto handed_over = std::make_shared<HandedOver>(
      HandedOver{.reception = reception_,
                 .stream = *std::move(stream),
                 .peer = peer,
                 .hello = message.hello,
                 .ack = ack,
                 .is_same_host = message.host == reception_->options.host,
                 .segment = std::move(segment_)});
  EventLoop& loop = *reception_->loops[ack.admitted.ok() ? message.hello.lane : 0];
  loop.Post([handed_over, &loop] { TakeOver(loop, *handed_over); });
  const std::shared_ptr<TcpAcceptance> self = shared_from_this();
  Abandon();
  on_end_();
}

}  // namespace pushpull
