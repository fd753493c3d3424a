// SPDX-License-Identifier: Apache-2.0
//
// gRPC's channel arguments for chunks, the same on both sides.
#pragma once

#include <functional>

#include "runtime/transport/stream/transport_options.h"

namespace pushpull {

// Calls `set` with each argument's name and value.
void SetStreamArguments(const TransportOptions& options,
                        const std::function<void(const char* name, int value)>& set);

}  // namespace pushpull
