// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/member_transport.h"

#include <utility>

#include "runtime/transport/grpc/grpc_transport.h"
#include "runtime/transport/tcp/tcp_transport.h"

namespace pushpull {

std::unique_ptr<Transport> MakeMemberTransport(std::vector<EventLoop*> loops,
                                               const TransportOptions& options) {
  if (options.has_grpc) return std::make_unique<GrpcTransport>(std::move(loops), options);
  return std::make_unique<TcpTransport>(std::move(loops), options);
}

}  // namespace pushpull
