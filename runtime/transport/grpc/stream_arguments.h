// SPDX-License-Identifier: Apache-2.0
//
// How gRPC's connections are set up for chunks, the same on both sides.
#pragma once

#include <functional>

#include "runtime/transport/grpc/grpc_options.h"

namespace pushpull {

// Calls `set` with each argument's name and value.
void SetStreamArguments(const GrpcOptions& options,
                        const std::function<void(const char* name, int value)>& set);

}  // namespace pushpull
