// SPDX-License-Identifier: Apache-2.0
//
// Codecs: how a gradient is written for the wire in fewer bytes than float32 has. Values are
// encoded where they are pushed and decoded before they are added, so sums are those of float32.
// Which codec a tensor has is agreed on when it is registered; the kernels that add are in
// reduce.h.
//
// Every function gives the same bits for the same input on every machine, as those of reduce.h; the
// payload of a NaN does not survive. Nothing is allocated, nothing blocks. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// The numbers travel in frames and stay what they are.
enum class Codec : uint8_t {
  kNone = 0,      // float32 as it is in memory
  kFloat16 = 1,   // IEEE 754 binary16: 11 bits, up to 65,504; to nearest, ties to even
  kBFloat16 = 2,  // the upper half of float32: 8 bits, its range; likewise
  kInt8 = 3,      // 8 bits and a scale for 256 values; rounded up or down by chance
  // These leave so much out that whoever encodes has to keep it for the next time (HasMemory).
  kTopK = 4,    // the one value in 100 that is largest, with its place
  kOneBit = 5,  // the sign, and two means for 1,024 values: of those above 0 and of the others
};

// Whether the number, as it came from a peer, is one of the above. The other functions need it to
// be.
constexpr bool IsKnown(Codec codec) {
  return codec <= Codec::kOneBit;
}

// Whether what the codec leaves out is added to the next gradient (error feedback; Seide, Fu,
// Droppo, Li, Yu, Interspeech 2014).
constexpr bool HasMemory(Codec codec) {
  return codec == Codec::kTopK || codec == Codec::kOneBit;
}

// "none", "fp16", "bf16", "int8", "topk" or "onebit"; anything else is kInvalidArgument and quoted
// in the text.
absl::StatusOr<Codec> ParseCodec(absl::string_view text);

// What ParseCodec reads; "codec 7" for a number that is none.
std::string ToString(Codec codec);

// What is encoded begins with these bytes: version (1), codec, two zeros, the number of values
// (uint32). Then, all little-endian:
//
//   fp16, bf16   a uint16 for each value
//   int8         a float32 for each 256 values or the rest of them: their scale; an int8 for each
//                value, which times its scale is the value
//   topk         a uint32 for each 65,536 values or the rest of them: how many are sent of these;
//                then a uint16 for each value that is sent: its place among these, rising; then a
//                float32 for each: the value
//   onebit       two float32 for each 1,024 values or the rest of them: the mean of the values
//                whose bit is 0 and that of those whose bit is 1; then the bits, lowest first
constexpr size_t kEncodedHeaderBytes = 8;
constexpr size_t kInt8BlockValues = 256;
constexpr size_t kTopKOneIn = 100;
constexpr size_t kTopKBlockValues = 65'536;
constexpr size_t kOneBitBlockValues = 1024;

// As many bytes as Encode writes for so many values, fewer than 2^32; of kNone, the values
// themselves. More than those of kNone where there are few values.
size_t EncodedBytes(Codec codec, size_t num_values);

// Decides how kInt8 rounds: another seed, other chances. The same for whoever encodes the same
// push, whenever.
uint64_t RoundingSeed(uint32_t worker, uint64_t step, uint64_t chunk);

// Writes `values` to `encoded`, which is EncodedBytes() long and does not overlap them. Returns how
// many finite values the codec has no finite number for: they are infinities now, so that whoever
// adds them notices. NaN and infinities stay such (int8: their 256 values are NaN). Of kInt8 the
// mean over many seeds is the value; |value - decoded| is below 1/127 of the largest of its block.
//
// `codec` is not kNone.
uint64_t Encode(Codec codec,
                std::span<const float> values,
                uint64_t seed,
                std::span<std::byte> encoded);

// The values that `encoded` has been made of, or what the codec has left of them. Any bytes may
// come: what does not hold exactly values.size() values in this codec is kDataLoss, which says why,
// and `values` are as before.
//
// `codec` is not kNone.
absl::Status Decode(Codec codec, std::span<const std::byte> encoded, std::span<float> values);

}  // namespace pushpull
