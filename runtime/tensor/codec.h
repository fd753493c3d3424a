// SPDX-License-Identifier: Apache-2.0
//
// Codecs encode gradients in fewer bytes than float32. Workers encode, and servers decode before
// they add (reduce.h), so sums are always float32. A tensor's codec is fixed when it is registered.
//
// Like those of reduce.h, all functions return the same bits for the same input on every machine;
// the payload of a NaN is not preserved. They neither allocate nor block. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "pushpull/tensor_spec.h"

namespace pushpull {

// Whether a value that a peer sent is a Codec. Precondition of the other functions.
constexpr bool IsKnown(Codec codec) {
  return codec <= Codec::kOneBit;
}

// Whether the codec needs error feedback, i.e. what it leaves out is added to the next gradient
// (Seide, Fu, Droppo, Li, Yu, Interspeech 2014).
constexpr bool HasMemory(Codec codec) {
  return codec == Codec::kTopK || codec == Codec::kOneBit;
}

// Accepts "none", "fp16", "bf16", "int8", "topk" and "onebit". kInvalidArgument quotes anything
// else.
absl::StatusOr<Codec> ParseCodec(absl::string_view text);

// The inverse of ParseCodec; "codec 7" for an unknown value.
std::string ToString(Codec codec);

// Encoded bytes begin with a header of 8 bytes: version (1), codec, two zeros, number of values
// (uint32). The body follows; everything is little-endian, and the last block may be shorter:
//
//   fp16, bf16   for each value a uint16
//   int8         for each block of 256 values a float32, their scale; for each value an int8, which
//                multiplied by its scale is the value
//   topk         for each block of 65,536 values a uint32, how many of them are sent; for each
//                value sent a uint16, its index in its block, ascending; for each value sent a
//                float32
//   onebit       for each block of 1,024 values two float32, the mean of the values whose bit is 0
//                and of those whose bit is 1; then the bits, lowest first
constexpr size_t kEncodedHeaderBytes = 8;
constexpr size_t kInt8BlockValues = 256;
constexpr size_t kTopKOneIn = 100;
constexpr size_t kTopKBlockValues = 65'536;
constexpr size_t kOneBitBlockValues = 1024;

// The number of bytes that Encode writes for `num_values` (below 2^32) values; with kNone the size
// of the values. For few values this may exceed the size with kNone.
size_t EncodedBytes(Codec codec, size_t num_values);

// The seed of kInt8's stochastic rounding. Encoding the same push again uses the same seed.
uint64_t RoundingSeed(uint32_t worker, uint64_t step, uint64_t chunk);

// Encodes `values` into `encoded`, which has EncodedBytes() bytes and does not overlap them.
// `codec` is not kNone. Returns the number of overflows: finite values that the codec cannot
// represent. They are encoded as infinities, which the server's check for non-finite values
// detects. NaN and infinities are preserved (kInt8: all values of their block become NaN). kInt8 is
// unbiased over the seeds; |value - decoded| is below 1/127 of the largest magnitude of the block.
uint64_t Encode(Codec codec,
                std::span<const float> values,
                uint64_t seed,
                std::span<std::byte> encoded);

// Decodes into `values`. `codec` is not kNone. `encoded` may be any bytes: kDataLoss says why they
// are not exactly values.size() values in this codec, and leaves `values` unchanged.
absl::Status Decode(Codec codec, std::span<const std::byte> encoded, std::span<float> values);

}  // namespace pushpull
