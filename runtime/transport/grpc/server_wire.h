// SPDX-License-Identifier: Apache-2.0
//
// The accepting side: a gRPC server that is handed connections, and its streams. No gRPC header is
// needed here.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/transport/grpc/grpc_options.h"
#include "runtime/transport/grpc/in_flight.h"
#include "runtime/transport/grpc/wire.h"

namespace pushpull {

// Thread-safe. It has no listening socket of its own, for gRPC's own stops listening some time
// after it was told to, and does not say why it could not begin.
class GrpcServer {
 public:
  // Takes over a stream that has just begun, on gRPC's thread.
  using StreamTaker = std::function<void(std::shared_ptr<Wire>)>;

  // `in_flight` outlives what it counts. kInternal: gRPC does not start, and its log says why.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcOptions& options,
                                                           InFlight& in_flight,
                                                           StreamTaker take);
  virtual ~GrpcServer() = default;

  // An accepted, non-blocking socket.
  virtual void Serve(FileDescriptor connection) = 0;

  // Ends its streams and begins no more. Blocks until gRPC is through with them, which waits for
  // every taken stream's End.
  virtual void Shutdown() = 0;
};

}  // namespace pushpull
