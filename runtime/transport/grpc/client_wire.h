// SPDX-License-Identifier: Apache-2.0
//
// The connecting side's stream, with a connection of its own. No gRPC header is needed here.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/deadline.h"
#include "runtime/transport/grpc/grpc_options.h"
#include "runtime/transport/grpc/in_flight.h"
#include "runtime/transport/grpc/wire.h"

namespace pushpull {

// Connects to host:port when it is started, once, and gives up after `timeout`. `in_flight`
// outlives what it counts.
std::shared_ptr<Wire> MakeClientWire(const std::string& address,
                                     Duration timeout,
                                     const GrpcOptions& options,
                                     InFlight& in_flight);

}  // namespace pushpull
