// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/push_values.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/tensor/codec.h"
#include "runtime/tensor/reduce.h"

namespace pushpull {
namespace {

std::string GradientOf(const Chunk& chunk, const FrameHeader& push) {
  return absl::StrCat("gradient of ",
                      chunk.Name(),
                      " from ",
                      ToString(push.worker),
                      " in step ",
                      push.step.value());
}

}  // namespace

absl::Status DecodePush(const Chunk& chunk,
                        const FrameHeader& push,
                        BufferPool& pool,
                        Reception& reception) {
  absl::StatusOr<HostBuffer> values = pool.Take(chunk.state().num_bytes());
  absl::Status decoded;
  if (values.ok()) {
    decoded = Decode(push.codec, reception.buffer.bytes(), values->floats());
    pool.Return(std::exchange(reception.buffer, *std::move(values)));
  } else {
    decoded = absl::UnavailableError("no memory for its values");
  }
  if (decoded.ok()) return decoded;
  pool.Return(std::move(reception.buffer));
  return absl::Status(decoded.code(),
                      absl::StrCat(GradientOf(chunk, push), ": ", decoded.message()));
}

std::span<const float> ValuesOf(const Reception& reception) {
  switch (reception.place) {
    case Reception::Place::kAccumulator:
      return reception.chunk->step().sum().received();
    case Reception::Place::kInPlace:
      return reception.in_place;
    case Reception::Place::kBuffer:
    case Reception::Place::kNowhere:
      return reception.buffer.floats();
  }
  return {};
}

absl::Status CheckFinite(const Chunk& chunk,
                         const FrameHeader& push,
                         std::span<const float> values) {
  if (AllFinite(values)) return absl::OkStatus();
  const bool is_encoded = push.codec != Codec::kNone;
  return absl::InvalidArgumentError(absl::StrCat(GradientOf(chunk, push),
                                                 " has a value that is not finite",
                                                 is_encoded ? " as " : "",
                                                 is_encoded ? ToString(push.codec) : ""));
}

}  // namespace pushpull
