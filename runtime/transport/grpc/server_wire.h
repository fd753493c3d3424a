// SPDX-License-Identifier: Apache-2.0
//
// The accepting side: a gRPC server that serves accepted sockets, and its streams. Does not include
// gRPC headers.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/transport/grpc/in_flight.h"
#include "runtime/transport/grpc/wire.h"
#include "runtime/transport/stream/transport_options.h"

namespace pushpull {

// Thread-safe. It does not listen itself: gRPC's listener stops some time after Shutdown, and does
// not report why it could not start.
class GrpcServer {
 public:
  // Takes over a new stream, on gRPC's thread.
  using StreamTaker = std::function<void(std::shared_ptr<Wire>)>;

  // `in_flight` outlives what it counts. kInternal: gRPC did not start; its log has the reason.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const TransportOptions& options,
                                                           InFlight& in_flight,
                                                           StreamTaker take);
  virtual ~GrpcServer() = default;

  // An accepted, non-blocking socket.
  virtual void Serve(FileDescriptor connection) = 0;

  // Ends its streams and accepts no more. Blocks until gRPC is done with them, which waits for the
  // End of every stream that was taken.
  virtual void Shutdown() = 0;
};

}  // namespace pushpull
