// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/grpc_listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/transport/grpc/grpc_acceptance.h"
#include "runtime/transport/tcp/socket.h"
#include "runtime/transport/tcp/socket_address.h"

namespace pushpull {
namespace {

// As those of the tcp channel (tcp/tcp_listener.cc), of streams that have not said hello yet.
constexpr size_t kAcceptancesMax = 128;
constexpr int kAcceptsPerTurn = 16;
constexpr Duration kPauseWhenExhausted = std::chrono::milliseconds(100);

}  // namespace

// Outlives the listener until the first loop has taken note. Confined to that loop, but for the
// constructor, StartServer, Shut and what is const.
class GrpcListener::State final : public std::enable_shared_from_this<State> {
 public:
  State(std::vector<EventLoop*> loops,
        const GrpcOptions& options,
        FileDescriptor socket,
        InFlight& in_flight,
        ChannelAcceptor& acceptor)
      : reception_(std::make_shared<GrpcReception>(std::move(loops), options, in_flight, acceptor)),
        loop_(*reception_->loops.front()),
        socket_(std::move(socket)) {}

  EventLoop& loop() { return loop_; }
  const Serving& serving() const { return server_; }

  absl::Status StartServer() {
    PUSHPULL_ASSIGN_OR_RETURN(
        server_,
        GrpcServer::Start(
            reception_->options,
            reception_->in_flight,
            // Not by shared_ptr: the server would keep it, and it keeps the server.
            [self = weak_from_this(), &loop = loop_](const std::shared_ptr<Wire>& wire) {
              loop.Post([self, wire] {
                const std::shared_ptr<State> state = self.lock();
                if (state == nullptr || state->is_ended_) return wire->End();
                state->Accept(wire);
              });
            }));
    return absl::OkStatus();
  }

  void Watch() {
    if (is_ended_) return;
    const absl::Status watched = loop_.Watch(
        socket_.get(), EPOLLIN, [self = shared_from_this()](uint32_t) { self->AcceptSockets(); });
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
  void AcceptSockets() {
    const TcpOptions socket_options{.user_timeout = reception_->options.silence_timeout,
                                    .buffers = {.unsent_bytes_max = 0}};  // gRPC has its windows
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      absl::StatusOr<FileDescriptor> socket = AcceptFrom(socket_.get(), socket_options);
      if (absl::IsResourceExhausted(socket.status())) return PauseAfter(socket.status());
      if (!socket.ok()) return;
      server_->Serve(*std::move(socket));
    }
  }

  void Accept(const std::shared_ptr<Wire>& wire) {
    const uint64_t number = next_number_++;
    const auto acceptance = std::make_shared<GrpcAcceptance>(
        reception_, wire, [this, number] { acceptances_.erase(number); });
    acceptances_.emplace(number, acceptance);
    acceptance->Start();
    if (acceptances_.size() > kAcceptancesMax) {
      const std::shared_ptr<GrpcAcceptance> oldest = acceptances_.begin()->second;
      oldest->Reject(absl::ResourceExhaustedError(
          absl::StrCat("more than ", kAcceptancesMax, " streams without a hello")));
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

  const std::shared_ptr<GrpcReception> reception_;
  EventLoop& loop_;
  FileDescriptor socket_;
  Serving server_;
  std::map<uint64_t, std::shared_ptr<GrpcAcceptance>> acceptances_;  // the oldest first
  uint64_t next_number_ = 0;
  Executor::TimerId retry_ = 0;
  bool is_ended_ = false;
};

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Start(std::vector<EventLoop*> loops,
                                                                  const GrpcOptions& options,
                                                                  FileDescriptor socket,
                                                                  InFlight& in_flight,
                                                                  ChannelAcceptor& acceptor) {
  std::string address = LocalAddress(socket.get());
  const auto state =
      std::make_shared<State>(std::move(loops), options, std::move(socket), in_flight, acceptor);
  PUSHPULL_RETURN_IF_ERROR(state->StartServer());
  return std::unique_ptr<GrpcListener>(new GrpcListener(std::move(address), state));
}

GrpcListener::GrpcListener(std::string address, std::shared_ptr<State> state)
    : address_(std::move(address)), state_(std::move(state)) {
  state_->loop().Post([state = state_] { state->Watch(); });
}

GrpcListener::~GrpcListener() {
  state_->Shut();
  state_->loop().Post([state = state_] { state->End(); });
}

GrpcListener::Serving GrpcListener::serving() const {
  return state_->serving();
}

}  // namespace pushpull
