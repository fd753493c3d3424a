// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/stream/stream_transport.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/transport/stream/socket.h"

namespace pushpull {
namespace {

TransportOptions WithTlsApplied(TransportOptions options) {
  if (options.tls != nullptr) options.payload_checksums = PayloadChecksums::kOff;
  return options;
}

}  // namespace

StreamTransport::StreamTransport(std::vector<EventLoop*> loops, TransportOptions options)
    : loops_(std::move(loops)), options_(WithTlsApplied(options)) {
  PUSHPULL_CHECK(!loops_.empty());
}

absl::StatusOr<std::unique_ptr<Listener>> StreamTransport::Listen(const std::string& address,
                                                                  ChannelAcceptor& acceptor) {
  PUSHPULL_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  PUSHPULL_ASSIGN_OR_RETURN(FileDescriptor socket, ListenOn(host_port, options_));
  PUSHPULL_ASSIGN_OR_RETURN(
      std::shared_ptr<StreamAcceptor> streams,
      MakeAcceptor(std::make_shared<AcceptContext>(loops_, options_, acceptor), std::move(socket)));
  return std::make_unique<StreamListener>(std::move(streams));
}

void StreamTransport::Connect(ConnectRequest request, ConnectDone done) {
  EventLoop& loop = *loops_[request.local_lane];
  const absl::StatusOr<HostPort> address = ParseHostPort(request.address);
  if (!address.ok()) {
    loop.Post([done = std::move(done), status = address.status()] { done(status); });
    return;
  }
  Dial(*address, loop, options_, std::move(request), std::move(done));
}

}  // namespace pushpull
