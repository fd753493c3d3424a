// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/grpc_connector.h"

#include "runtime/tls/grpc_credentials.h"
#include "runtime/transport/grpc/client_wire.h"
#include "runtime/transport/grpc/grpc_stream.h"

namespace pushpull {

void GrpcConnector::Dial(InFlight& in_flight) {
  const auto wire =
      MakeClientWire(request().address, request().deadline.remaining(), options(), in_flight);
  SendHello(GrpcStream::Open(loop(),
                             wire,
                             {.side = StreamSide::kConnecting,
                              .peer = peer(),
                              .frames_max = options().send_queue_frames_max},
                             in_flight));
}

absl::Status GrpcConnector::Explain(const absl::Status& why) const {
  return ExplainNoAnswer(why, options().tls != nullptr);
}

}  // namespace pushpull
