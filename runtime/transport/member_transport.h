// SPDX-License-Identifier: Apache-2.0
//
// Makes the transport of a member's process.
#pragma once

#include <memory>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/stream/transport_options.h"

namespace pushpull {

// tcp or grpc, as the options say. The loops and everything that the options refer to outlive it.
std::unique_ptr<Transport> MakeMemberTransport(std::vector<EventLoop*> loops,
                                               const TransportOptions& options);

}  // namespace pushpull
