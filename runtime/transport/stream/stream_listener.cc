// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/stream/stream_listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/peer_clock.h"
#include "runtime/transport/stream/socket.h"
#include "runtime/transport/stream/socket_address.h"
#include "runtime/transport/stream/stream_channel.h"

namespace pushpull {
namespace {

// Maximum number of connections without a hello. One more closes the oldest: an honest peer sends
// its hello at once, so it is hardly ever the oldest, and silent ones cannot keep others out.
constexpr size_t kHandshakesMax = 128;

// Connections accepted before the loop's other connections get their turn.
constexpr int kAcceptsPerTurn = 16;

// Without a free descriptor, accepting fails for as long as all of them are in use.
constexpr Duration kPauseWhenExhausted = std::chrono::milliseconds(100);

// Runs on the lane's own thread, which sends the answer: from here on, only that thread uses the
// stream.
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

// One accepted connection until it is a channel. Thread-confined to the first loop. Held by
// shared_ptr because its owner drops it in `on_end`.
class StreamAcceptor::Handshake final : private FrameStreamOwner,
                                        public std::enable_shared_from_this<Handshake> {
 public:
  // `on_end` is called once, when the connection has become a channel or was closed.
  Handshake(std::shared_ptr<AcceptContext> context,
            std::shared_ptr<FrameStream> stream,
            std::function<void()> on_end)
      : context_(std::move(context)), stream_(std::move(stream)), on_end_(std::move(on_end)) {}

  void Start() {
    const Duration timeout = context_->options.handshake_timeout;
    timer_ = stream_->loop().RunAfter(timeout, [this, timeout] {
      Reject(
          absl::DeadlineExceededError(absl::StrCat("no hello within ", ToSeconds(timeout), " s")));
    });
    stream_->Start(*this);
  }

  // Closes the connection and reports why; `why` does not name the peer yet.
  void Reject(const absl::Status& why) {
    OnClosed(absl::Status(why.code(), absl::StrCat(stream_->peer(), ": ", why.message())));
  }

  // Closes the connection without a report.
  void Abandon() {
    stream_->loop().Cancel(timer_);
    stream_->Close();
  }

 private:
  void OnFrame(const ReceivedFrame& frame) override {
    if (frame.header.type != FrameType::kHello)
      return Reject(absl::DataLossError("the first frame is not a hello"));
    const absl::StatusOr<HelloMeta> message = DecodeHello(frame.meta);
    if (!message.ok()) return Reject(message.status());
    HelloAckMeta ack = Answer(frame, *message);
    if (message->shm && ack.admitted.ok()) stream_->MakeSharedMemory(*message, ack);
    HandOver(*message, ack);
  }

  // `why` names the peer.
  void OnClosed(const absl::Status& why) override {
    const std::shared_ptr<Handshake> self = shared_from_this();
    Abandon();
    on_end_();
    context_->gate.Enter([&](ChannelAcceptor& acceptor) { acceptor.OnRejected(why); });
  }

  absl::Status Judge(const Hello& hello) {
    PUSHPULL_ASSIGN_OR_RETURN(const PeerIdentity peer, stream_->identity());
    PUSHPULL_RETURN_IF_ERROR(peer.CheckIs(PeerName(hello)));
    absl::Status verdict = absl::UnavailableError("no longer listens");
    context_->gate.Enter([&](ChannelAcceptor& acceptor) { verdict = acceptor.Admit(hello); });
    if (verdict.ok() && hello.lane >= context_->loops.size())
      return absl::InvalidArgumentError(absl::StrCat("there is no lane ", hello.lane));
    return verdict;
  }

  HelloAckMeta Answer(const ReceivedFrame& frame, const HelloMeta& message) {
    const TransportOptions& options = context_->options;
    return {.admitted = Judge(message.hello),
            .lane_count = static_cast<uint32_t>(context_->loops.size()),
            .host = options.host,
            .has_payload_checksums = AgreeOnPayloadChecksums(
                options.payload_checksums, message.payload_checksums, message.host == options.host),
            .hello_sent_at = frame.header.sent_at,
            .hello_received_at = NanosecondsOf(frame.received_at)};
  }

  void HandOver(const HelloMeta& message, const HelloAckMeta& ack) {
    EventLoop& loop = *context_->loops[ack.admitted.ok() ? message.hello.lane : 0];
    const absl::StatusOr<std::shared_ptr<FrameStream>> stream =
        stream_->MoveTo(loop, absl::StrCat(PeerName(message.hello), " at ", stream_->peer()));
    if (!stream.ok()) return Reject(stream.status());
    loop.Post([context = context_, stream = *stream, message, ack] {
      MakeChannel(*context, stream, message, ack);
    });
    const std::shared_ptr<Handshake> self = shared_from_this();
    Abandon();
    on_end_();
  }

  const std::shared_ptr<AcceptContext> context_;
  const std::shared_ptr<FrameStream> stream_;
  const std::function<void()> on_end_;
  Executor::TimerId timer_ = 0;
};

StreamAcceptor::StreamAcceptor(std::shared_ptr<AcceptContext> context, FileDescriptor socket)
    : context_(std::move(context)), socket_(std::move(socket)) {}

StreamAcceptor::~StreamAcceptor() = default;

void StreamAcceptor::Watch() {
  if (is_ended_) return;
  const absl::Status watched = loop().Watch(
      socket_.get(), EPOLLIN, [self = shared_from_this()](uint32_t) { self->Accept(); });
  if (!watched.ok()) PauseAfter(watched);
}

void StreamAcceptor::Shut() {
  shutdown(socket_.get(), SHUT_RDWR);
  context_->gate.Close();
}

void StreamAcceptor::End() {
  is_ended_ = true;
  if (retry_ != 0) loop().Cancel(retry_);
  loop().Unwatch(socket_.get());
  socket_.Reset();
  for (const auto& [number, handshake] : std::exchange(handshakes_, {})) handshake->Abandon();
}

void StreamAcceptor::Accept() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    absl::StatusOr<FileDescriptor> socket = AcceptFrom(socket_.get(), context_->options);
    if (absl::IsResourceExhausted(socket.status())) return PauseAfter(socket.status());
    if (!socket.ok()) return;
    TakeSocket(*std::move(socket));
  }
}

void StreamAcceptor::Receive(std::shared_ptr<FrameStream> stream) {
  const uint64_t number = next_number_++;
  const auto handshake = std::make_shared<Handshake>(
      context_, std::move(stream), [this, number] { handshakes_.erase(number); });
  handshakes_.emplace(number, handshake);
  handshake->Start();
  if (handshakes_.size() > kHandshakesMax) {
    handshakes_.begin()->second->Reject(absl::ResourceExhaustedError(
        absl::StrCat("more than ", kHandshakesMax, " connections without a hello")));
  }
}

void StreamAcceptor::PauseAfter(const absl::Status& why) {
  loop().Unwatch(socket_.get());
  retry_ = loop().RunAfter(kPauseWhenExhausted, [self = shared_from_this()] {
    self->retry_ = 0;
    self->Watch();
  });
  context_->gate.Enter([&](ChannelAcceptor& acceptor) { acceptor.OnRejected(why); });
}

StreamListener::StreamListener(std::shared_ptr<StreamAcceptor> acceptor)
    : acceptor_(std::move(acceptor)), address_(LocalAddress(acceptor_->socket())) {
  acceptor_->loop().Post([acceptor = acceptor_] { acceptor->Watch(); });
}

StreamListener::~StreamListener() {
  acceptor_->Shut();
  acceptor_->loop().Post([acceptor = acceptor_] { acceptor->End(); });
}

}  // namespace pushpull
