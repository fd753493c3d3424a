// SPDX-License-Identifier: Apache-2.0
//
// Frames that wait, as the next message of a stream. Does no I/O.
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/transport/frame_queue.h"
#include "runtime/transport/grpc/payload_loans.h"
#include "runtime/transport/grpc/wire.h"

namespace pushpull {

enum class OwnerlessPayloads {
  kLend,  // the stream's end waits for them
  kCopy,  // it does not
};

// Takes the most urgent frames, whole, one at least where there is one: as many as make a message
// worth its cost. `now` becomes their sent_at.
OutgoingMessage NextMessage(FrameQueue& waiting,
                            SteadyTime now,
                            bool has_checksums,
                            OwnerlessPayloads ownerless,
                            PayloadLoans& loans);

}  // namespace pushpull
