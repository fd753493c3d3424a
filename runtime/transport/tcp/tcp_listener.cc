// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/tcp_listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/transport/tcp/socket.h"
#include "runtime/transport/tcp/socket_address.h"
#include "runtime/transport/tcp/tcp_acceptance.h"

namespace pushpull {
namespace {

// Connections that have not said hello yet. When one more comes, the oldest goes: an honest peer
// says hello at once, so it is hardly ever the oldest, while silent ones cannot keep others out.
constexpr size_t kAcceptancesMax = 128;

// Accepted before the loop's other connections get their turn.
constexpr int kAcceptsPerTurn = 16;

// Without a free descriptor accepting fails for as long as something holds them.
constexpr Duration kPauseWhenExhausted = std::chrono::milliseconds(100);

}  // namespace

// Outlives the listener until the first loop has taken note. Confined to that loop, but for the
// constructor, Shut and what is const.
class TcpListener::State final : public std::enable_shared_from_this<State> {
 public:
  State(std::vector<EventLoop*> loops,
        const TcpOptions& options,
        FileDescriptor socket,
        ChannelAcceptor& acceptor)
      : reception_(std::make_shared<TcpReception>(std::move(loops), options, acceptor)),
        loop_(*reception_->loops.front()),
        socket_(std::move(socket)) {}

  EventLoop& loop() { return loop_; }

  void Watch() {
    if (is_ended_) return;
    const absl::Status watched = loop_.Watch(
        socket_.get(), EPOLLIN, [self = shared_from_this()](uint32_t) { self->Accept(); });
    if (!watched.ok()) PauseAfter(watched);
  }

  // Thread-safe: from now on the port is free and the acceptor is left alone.
  void Shut() {
    shutdown(socket_.get(), SHUT_RDWR);
    reception_->gate.Close();
  }

  void End() {
    is_ended_ = true;
    if (retry_ != 0) loop_.Cancel(retry_);
    loop_.Unwatch(socket_.get());
    socket_.Reset();
    for (const auto& [number, acceptance] : std::exchange(acceptances_, {})) acceptance->Abandon();
  }

 private:
  void Accept() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      absl::StatusOr<FileDescriptor> socket = AcceptFrom(socket_.get(), reception_->options);
      if (absl::IsResourceExhausted(socket.status())) return PauseAfter(socket.status());
      if (!socket.ok()) return;
      const uint64_t number = next_number_++;
      const auto acceptance = std::make_shared<TcpAcceptance>(
          reception_, *std::move(socket), [this, number] { acceptances_.erase(number); });
      acceptances_.emplace(number, acceptance);
      acceptance->Start();
      if (acceptances_.size() > kAcceptancesMax) {
        const std::shared_ptr<TcpAcceptance> oldest = acceptances_.begin()->second;
        oldest->Reject(absl::ResourceExhaustedError(
            absl::StrCat("more than ", kAcceptancesMax, " connections without a hello")));
      }
    }
  }

  void PauseAfter(const absl::Status& why) {
    loop_.Unwatch(socket_.get());
    retry_ = loop_.RunAfter(kPauseWhenExhausted, [self = shared_from_this()] {
      self->retry_ = 0;
      self->Watch();
    });
    reception_->gate.Enter([&](ChannelAcceptor& acceptor) { acceptor.OnRejected(why); });
  }

  const std::shared_ptr<TcpReception> reception_;
  EventLoop& loop_;
  FileDescriptor socket_;
  std::map<uint64_t, std::shared_ptr<TcpAcceptance>> acceptances_;  // the oldest first
  uint64_t next_number_ = 0;
  Executor::TimerId retry_ = 0;
  bool is_ended_ = false;
};

TcpListener::TcpListener(std::vector<EventLoop*> loops,
                         const TcpOptions& options,
                         FileDescriptor socket,
                         ChannelAcceptor& acceptor)
    : address_(LocalAddress(socket.get())),
      state_(std::make_shared<State>(std::move(loops), options, std::move(socket), acceptor)) {
  state_->loop().Post([state = state_] { state->Watch(); });
}

TcpListener::~TcpListener() {
  state_->Shut();
  state_->loop().Post([state = state_] { state->End(); });
}

}  // namespace pushpull
