// SPDX-License-Identifier: Apache-2.0
//
// Dials a peer over gRPC, which looks up its host and connects by itself.
#pragma once

#include "runtime/transport/grpc/in_flight.h"
#include "runtime/transport/stream/stream_connector.h"

namespace pushpull {

// Thread-confined to the loop.
class GrpcConnector final : public StreamConnector {
 public:
  using StreamConnector::StreamConnector;

  // Called after Begin.
  void Dial(InFlight& in_flight);

 private:
  absl::Status Explain(const absl::Status& why) const override;
};

}  // namespace pushpull
