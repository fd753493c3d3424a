// SPDX-License-Identifier: Apache-2.0
//
// Converts messages to and from gRPC's type without copying.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "runtime/transport/grpc/wire.h"

namespace pushpull {

grpc::ByteBuffer ToByteBuffer(OutgoingMessage message);
IncomingMessage FromByteBuffer(const grpc::ByteBuffer& buffer);

}  // namespace pushpull
