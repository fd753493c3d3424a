// SPDX-License-Identifier: Apache-2.0
//
// Why a push cannot count, and what the worker does about it; and the way from a payload to its
// values: decoding codecs (docs/decisions/0036-codecs.md) and checking for values that are not
// finite (spec.sync.nonFinite).
#pragma once

#include <span>

#include "absl/status/status.h"

#include "runtime/server/connection.h"
#include "runtime/server/step_policy.h"

namespace pushpull {

// OK if the push counts, or has counted before.
//   kUnavailable   not now: send it again
//   kAborted       the worker is not a member: rejoin
//   others         the worker's mistake, or a failed chunk: report
absl::Status WhyRefused(const Chunk& chunk,
                        const StepRules& rules,
                        const FrameHeader& push,
                        PushVerdict verdict);

// kInvalidArgument: a payload of this length, type and codec cannot belong to the chunk; the text
// has both sides.
absl::Status CheckPayload(const Chunk& chunk, const FrameHeader& frame);

// Whether the payload is not in the form of master values: it has a codec, or another type.
bool IsEncoded(const FrameHeader& push);

// Replaces an encoded payload with float32 values while it is still in the cache. On error the
// buffer has gone back to the pool.
// kUnavailable: no memory; the worker sends it again. Otherwise: the bytes are not valid for this
// codec.
absl::Status DecodePush(const Chunk& chunk,
                        const FrameHeader& push,
                        BufferPool& pool,
                        Reception& reception);

// The values of a complete contribution, wherever they lie.
std::span<const float> ValuesOf(const Reception& reception);

// kInvalidArgument: a value is NaN or infinite; the text names tensor, worker and step.
absl::Status CheckFinite(const Chunk& chunk,
                         const FrameHeader& push,
                         std::span<const float> values);

// kInvalidArgument: the step's sum has a value that is NaN or infinite, though its contributions
// passed CheckFinite: they overflow together, or one was read from shared memory and changed after
// the check. The text names tensor and step.
absl::Status CheckSum(const Chunk& chunk);

}  // namespace pushpull
