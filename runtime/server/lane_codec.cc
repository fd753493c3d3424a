// SPDX-License-Identifier: Apache-2.0
//
// The part of Lane for contributions that come as a codec's bytes (decisions/0036-codecs.md): they
// become float32 before anything else looks at them, while they are still in the cache.
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/server/lane.h"

namespace pushpull {

bool Lane::DecodeReceived(Connection& connection,
                          const ChunkSlot& slot,
                          Reception& reception,
                          Waiter& waiter) {
  const FrameHeader& push = waiter.request;
  if (push.codec == Codec::kNone) return true;
  const SteadyTime begin = executor_.Now();
  absl::StatusOr<HostBuffer> values = pool_->Take(slot.state.num_bytes());
  absl::Status decoded;
  if (values.ok()) {
    decoded = Decode(push.codec, reception.buffer.bytes(), values->floats());
    pool_->Return(std::exchange(reception.buffer, *std::move(values)));
  } else {
    decoded = absl::UnavailableError("no memory for its values");
  }
  waiter.sum_time += executor_.Now() - begin;
  if (decoded.ok()) return true;
  pool_->Return(std::move(reception.buffer));
  Refuse(connection,
         push,
         absl::Status(decoded.code(),
                      absl::StrCat("gradient of ",
                                   slot.Name(),
                                   " from ",
                                   ToString(push.worker),
                                   " in step ",
                                   push.step.value(),
                                   ": ",
                                   decoded.message())));
  return false;
}

}  // namespace pushpull
