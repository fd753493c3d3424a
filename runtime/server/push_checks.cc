// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/push_checks.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/consistency/push_numbers.h"
#include "runtime/server/row_payload.h"
#include "runtime/server/sample_chunk.h"
#include "runtime/server/wire_values.h"
#include "runtime/tensor/codec.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/master_values.h"
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

absl::Status CheckWithoutGradient(const Chunk& chunk, const FrameHeader& push) {
  const bool is_empty = push.payload_bytes == 0 && push.codec == Codec::kNone;
  if (is_empty && !HoldsSamples(chunk)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(chunk.Name(),
                                                 ": a push without a gradient, with ",
                                                 push.payload_bytes,
                                                 " bytes, codec ",
                                                 ToString(push.codec),
                                                 "; it has no payload, and samples have a value"));
}

}  // namespace

absl::Status WhyRefused(const Chunk& chunk,
                        const StepRules& rules,
                        const FrameHeader& push,
                        PushVerdict verdict) {
  const auto of_chunk = [&](const auto&... text) { return absl::StrCat(chunk.Name(), text...); };
  const uint64_t step = push.step.value();
  if (chunk.step().has_failed())
    return absl::FailedPreconditionError(of_chunk(" has had a value that is not finite"));
  if (!chunk.state().is_initialized())
    return absl::FailedPreconditionError(of_chunk(" has no value yet"));
  const absl::Status numbers = CheckPushNumbers(push.weight, push.learning_rate);
  if (!numbers.ok()) return absl::InvalidArgumentError(of_chunk(": ", numbers.message()));
  switch (verdict) {
    case PushVerdict::kNotYet:
      return absl::UnavailableError(
          of_chunk(": the mode that begins with step ", step, " is not in force yet"));
    case PushVerdict::kTooEarly:
      return absl::InvalidArgumentError(
          of_chunk(": push for step ", step, ", its version is ", chunk.state().version().value()));
    case PushVerdict::kNotAdmitted:
      // Gated: the leading chunk has completed the step without this worker, which is being given
      // up, or learns of that with the next version.
      return rules.policy().HoldsApart(chunk)
                 ? absl::UnavailableError(
                       of_chunk(": step ", step, " is decided without ", ToString(push.worker)))
                 : absl::InvalidArgumentError(of_chunk(
                       ": ", ToString(push.worker), " has not been admitted to step ", step));
    case PushVerdict::kNotMember: {
      const std::string who =
          absl::StrCat(ToString(push.worker), " is not a member in step ", step);
      // The worker's view may be newer than this server's, and let it begin earlier.
      return rules.membership().StartsAfter(push.worker, push.incarnation, push.step)
                 ? absl::UnavailableError(absl::StrCat(who, " yet"))
                 : absl::AbortedError(absl::StrCat(who, ": rejoin"));
    }
    case PushVerdict::kContribute:
    case PushVerdict::kDuplicate:
    case PushVerdict::kAnswered:
      break;
  }
  return absl::OkStatus();
}

absl::Status CheckPayload(const Chunk& chunk, const FrameHeader& frame) {
  const DType dtype = chunk.tensor().spec.dtype;
  if (frame.dtype != dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        chunk.Name(), ": comes as ", ToString(frame.dtype), ", registered as ", ToString(dtype)));
  }
  if (IsWithoutGradient(frame)) return CheckWithoutGradient(chunk, frame);
  const Codec agreed = chunk.tensor().spec.codec;
  if (frame.codec != Codec::kNone && (frame.codec != agreed || !IsPush(frame.type))) {
    return absl::InvalidArgumentError(absl::StrCat(chunk.Name(),
                                                   ": comes with codec ",
                                                   ToString(frame.codec),
                                                   ", registered with ",
                                                   ToString(agreed)));
  }
  if (HoldsRows(chunk)) return CheckRowBytes(chunk, frame);
  if (frame.type == FrameType::kPull) {
    return absl::InvalidArgumentError(
        absl::StrCat(chunk.Name(), ": a pull with ", frame.payload_bytes, " bytes of keys"));
  }
  const ChunkState& state = chunk.state();
  const size_t expected = frame.codec == Codec::kNone
                              ? WireBytes(chunk)
                              : EncodedBytes(frame.codec, state.num_bytes() / sizeof(float));
  const bool is_initial = frame.type == FrameType::kInit;
  const uint64_t narrowed = state.num_bytes() - WireBytes(chunk);
  if (frame.payload_bytes == expected ||
      (is_initial && state.HasStateIn(frame.payload_bytes + narrowed)))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(chunk.Name(), ": got ", frame.payload_bytes, " bytes, expected ", expected));
}

bool IsEncoded(const FrameHeader& push) {
  return !IsWithoutGradient(push) && (push.codec != Codec::kNone || !IsMaster(push.dtype));
}

absl::Status DecodePush(const Chunk& chunk,
                        const FrameHeader& push,
                        BufferPool& pool,
                        Reception& reception) {
  absl::StatusOr<HostBuffer> values = pool.Take(chunk.state().num_bytes());
  absl::Status decoded;
  if (values.ok()) {
    const std::span<const std::byte> received = reception.buffer.bytes();
    if (push.codec != Codec::kNone) {
      decoded = Decode(push.codec, received, values->floats());
    } else {
      Widen(push.dtype, received, values->floats());
    }
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
      return reception.chunk->step().sum().sum();
    case Reception::Place::kInPlace:
      return reception.in_place;
    case Reception::Place::kBuffer:
    case Reception::Place::kNowhere:
      break;
  }
  const Chunk* chunk = reception.chunk;
  if (chunk == nullptr || !HoldsRows(*chunk)) return reception.buffer.floats();
  const absl::StatusOr<SparseRows> rows =
      ParseSparseRows(reception.buffer.bytes(), chunk->state().rows()->dim());
  return rows.ok() ? rows->values : std::span<const float>();
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

absl::Status CheckSum(const Chunk& chunk) {
  if (chunk.step().sum().is_finite()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sum of the gradients of ",
                   chunk.Name(),
                   " in step ",
                   chunk.state().version().value(),
                   " has a value that is not finite, though each gradient was"));
}

}  // namespace pushpull
