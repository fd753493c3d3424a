// SPDX-License-Identifier: Apache-2.0
//
// Turns waiting frames into the next message of a stream. Does no I/O.
#pragma once

#include "pushpull/deadline.h"

#include "runtime/transport/frame_queue.h"
#include "runtime/transport/grpc/payload_loans.h"
#include "runtime/transport/grpc/wire.h"

namespace pushpull {

enum class OwnerlessPayloads {
  kLend,  // closing the stream waits for their return
  kCopy,  // it does not
};

// Takes the most urgent frames, always complete ones and at least one if any waits: enough to
// amortize the cost of a message. `now` becomes their sent_at.
OutgoingMessage NextMessage(FrameQueue& waiting,
                            SteadyTime now,
                            bool has_checksums,
                            OwnerlessPayloads ownerless,
                            PayloadLoans& loans);

}  // namespace pushpull
