// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/tcp_connector.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/tcp/socket.h"
#include "runtime/transport/tcp/tcp_channel.h"

namespace pushpull {
namespace {

std::optional<ShmOffer> OfferOf(const std::optional<ShmSegment>& segment) {
  if (!segment) return std::nullopt;
  return segment->offer();
}

}  // namespace

TcpConnector::TcpConnector(EventLoop& loop,
                           const TcpOptions& options,
                           ConnectRequest request,
                           ConnectDone done)
    : loop_(loop),
      options_(options),
      request_(std::move(request)),
      peer_(absl::StrCat(request_.peer_name, " at ", request_.address)),
      done_(std::move(done)) {}

void TcpConnector::Begin() {
  timer_ = loop_.RunAt(request_.deadline.when(), [self = shared_from_this()] {
    self->Fail(absl::DeadlineExceededError("no connection in time"));
  });
}

void TcpConnector::TryAddresses(absl::StatusOr<std::vector<SocketAddress>> addresses) {
  if (!done_) return;  // the deadline was faster than the look-up
  if (!addresses.ok()) return Fail(addresses.status());
  addresses_ = *std::move(addresses);
  std::reverse(addresses_.begin(), addresses_.end());
  TryNext(absl::UnavailableError("it has no address"));
}

void TcpConnector::TryNext(const absl::Status& why) {
  absl::Status last = why;
  while (!addresses_.empty()) {
    const SocketAddress address = addresses_.back();
    addresses_.pop_back();
    last = Try(address);
    if (last.ok()) return;
  }
  // Whatever the reason, trying again later may help.
  Fail(absl::UnavailableError(last.message()));
}

absl::Status TcpConnector::Try(const SocketAddress& address) {
  PUSHPULL_ASSIGN_OR_RETURN(socket_, BeginConnect(address, options_));
  return loop_.Watch(
      socket_.get(), EPOLLOUT, [self = shared_from_this()](uint32_t) { self->OnConnected(); });
}

void TcpConnector::OnConnected() {
  loop_.Unwatch(socket_.get());
  const absl::Status connected = ConnectResult(socket_.get());
  if (!connected.ok()) {
    socket_.Reset();
    return TryNext(connected);
  }
  TuneToPeer(socket_.get(), options_.buffers);
  MakeSharedMemory(socket_.get());
  connection_ = std::make_shared<TcpConnection>(
      loop_,
      TcpStream(std::move(socket_), CurrentIdentity(options_.tls), TlsSide::kConnecting),
      peer_,
      options_.send_queue_frames_max);
  connection_->Send({.header = {.type = FrameType::kHello,
                                .worker = request_.hello.worker,
                                .incarnation = request_.hello.incarnation},
                     .meta = EncodeHello({.hello = request_.hello,
                                          .host = options_.host,
                                          .payload_checksums = options_.payload_checksums,
                                          .shm = OfferOf(segment_)}),
                     .payload = {}});
  connection_->Start(*this);
}

void TcpConnector::OnFrame(const ReceivedFrame& frame) {
  if (frame.header.type != FrameType::kHelloAck)
    return Fail(absl::DataLossError("answered a hello with something else"));
  const absl::StatusOr<HelloAckMeta> ack = DecodeHelloAck(frame.meta);
  if (!ack.ok()) return Fail(ack.status());
  if (!ack->admitted.ok()) return Fail(ack->admitted);
  const absl::Status used = UseSharedMemory(*ack);
  if (!used.ok()) return Fail(used);
  Finish(MakeChannel(frame, *ack));
}

// Of a peer elsewhere it is known that it will not reach it.
void TcpConnector::MakeSharedMemory(int socket) {
  segment_.reset();
  if (options_.shm == nullptr || !IsToOwnAddress(socket)) return;
  absl::StatusOr<ShmSegment> made = options_.shm->Create();
  if (made.ok()) {
    segment_.emplace(*std::move(made));
  } else {
    options_.shm->Complain(peer_, made.status());
  }
}

absl::Status TcpConnector::UseSharedMemory(const HelloAckMeta& ack) {
  if (!segment_) return absl::OkStatus();
  ShmSegment segment = *std::move(segment_);
  segment_.reset();
  if (!ack.shm_attached.ok()) {
    options_.shm->Complain(peer_, ack.shm_attached);
    return absl::OkStatus();
  }
  // It will send through memory, so it had better be this.
  if (ack.shm_proof != segment.proof())
    return absl::DataLossError("says that it has the shared memory offered to it, and has not");
  segment.Unlink();
  connection_->UseSharedMemory(std::move(segment), ShmSide::kConnecting);
  return absl::OkStatus();
}

void TcpConnector::OnClosed(const absl::Status& why) {
  // Certificates are replaced on one host after the other: what does not fit now may soon.
  if (absl::IsUnauthenticated(why)) return Finish(absl::UnavailableError(why.message()));
  if (options_.tls != nullptr || !absl::IsUnavailable(why)) return Finish(why);
  Finish(absl::UnavailableError(absl::StrCat(
      why.message(), " before it answered a hello; if it has TLS, set PUSHPULL_TLS_DIR here")));
}

std::unique_ptr<Channel> TcpConnector::MakeChannel(const ReceivedFrame& ack_frame,
                                                   const HelloAckMeta& ack) {
  connection_->Pause();
  connection_->queue().SetPayloadChecksums(ack.has_payload_checksums);
  const auto at = [](int64_t ns) { return SteadyTime(std::chrono::nanoseconds(ns)); };
  ClockEstimate clock;
  clock.Add({.sent = at(ack.hello_sent_at),
             .peer_received = at(ack.hello_received_at),
             .peer_sent = at(ack_frame.header.sent_at),
             .received = ack_frame.received_at});
  const bool is_same_host = ack.host == options_.host;
  return std::make_unique<TcpChannel>(std::move(connection_),
                                      is_same_host ? ClockRole::kShared : ClockRole::kMeasures,
                                      std::move(clock));
}

void TcpConnector::Fail(const absl::Status& why) {
  Finish(absl::Status(why.code(), absl::StrCat(peer_, ": ", why.message())));
}

void TcpConnector::Finish(absl::StatusOr<std::unique_ptr<Channel>> result) {
  if (!done_) return;
  const std::shared_ptr<TcpConnector> self = shared_from_this();  // the timer may be the last
  loop_.Cancel(timer_);
  if (socket_.is_open()) loop_.Unwatch(socket_.get());
  socket_.Reset();
  if (connection_ != nullptr) connection_->Close();
  std::exchange(done_, nullptr)(std::move(result));
}

}  // namespace pushpull
