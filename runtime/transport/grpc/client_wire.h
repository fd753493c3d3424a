// SPDX-License-Identifier: Apache-2.0
//
// The connecting side's stream, with its own connection. Does not include gRPC headers.
#pragma once

#include <memory>
#include <string>

#include "pushpull/deadline.h"

#include "runtime/transport/grpc/in_flight.h"
#include "runtime/transport/grpc/wire.h"
#include "runtime/transport/stream/transport_options.h"

namespace pushpull {

// Connects to host:port once, when started, and gives up after `timeout`. `in_flight` outlives what
// it counts. `member`: the member that must answer there, e.g. "server-1"; empty: any member of the
// job.
std::shared_ptr<Wire> MakeClientWire(const std::string& address,
                                     const std::string& member,
                                     Duration timeout,
                                     const TransportOptions& options,
                                     InFlight& in_flight);

}  // namespace pushpull
