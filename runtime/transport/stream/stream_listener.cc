// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/stream/stream_listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/transport/stream/socket.h"
#include "runtime/transport/stream/socket_address.h"

namespace pushpull {
namespace {

// Connections without a hello. One more closes the oldest: an honest peer sends its hello at once,
// so it is hardly ever the oldest, while silent ones cannot keep others out.
constexpr size_t kHandshakesMax = 128;

// Accepted before the loop's other connections get their turn.
constexpr int kAcceptsPerTurn = 16;

// Without a free descriptor accepting fails for as long as something holds them.
constexpr Duration kPauseWhenExhausted = std::chrono::milliseconds(100);

}  // namespace

StreamAcceptor::StreamAcceptor(std::shared_ptr<AcceptContext> context, FileDescriptor socket)
    : context_(std::move(context)), socket_(std::move(socket)) {}

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
  const auto handshake = std::make_shared<InboundHandshake>(
      context_, std::move(stream), [this, number] { handshakes_.erase(number); });
  handshakes_.emplace(number, handshake);
  handshake->Start();
  if (handshakes_.size() > kHandshakesMax) {
    const std::shared_ptr<InboundHandshake> oldest = handshakes_.begin()->second;
    oldest->Reject(absl::ResourceExhaustedError(
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
