// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/tensor/half_float.h"
#include "runtime/tensor/unaligned.h"

// As in reduce.cc: compiled once for each instruction set. The kernels are plain loops without
// branches, which the compiler vectorizes.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/tensor/codec.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

constexpr uint32_t kSignBit = 0x80000000U;

HWY_INLINE uint32_t BitsOf(float x) {
  return std::bit_cast<uint32_t>(x);
}

uint32_t LargestMagnitudeKernel(const float* values, size_t num_values) {
  // As integers, the bits without the sign are in the order of the magnitudes; NaN is the largest.
  uint32_t largest = 0;
  for (size_t i = 0; i < num_values; ++i)
    largest = std::max(largest, BitsOf(values[i]) & ~kSignBit);
  return largest;
}

// In [0, 1), by the finalizer of MurmurHash3 (Appleby, public domain) of place and seed: each value
// depends on these alone, so vectors of any length give the same.
HWY_INLINE float Chance(uint32_t place, uint32_t seed_low, uint32_t seed_high) {
  uint32_t hash = place ^ seed_low;
  hash ^= hash >> 16;
  hash *= 0x85EBCA6BU;
  hash ^= hash >> 13;
  hash += seed_high;
  hash *= 0xC2B2AE35U;
  hash ^= hash >> 16;
  return static_cast<float>(static_cast<int32_t>(hash >> 8)) * 0x1p-24F;
}

// All values are finite and, times `factor`, between -127 and 127 except for rounding.
void QuantizeKernel(const float* values,
                    size_t num_values,
                    float factor,
                    uint64_t seed,
                    size_t first_place,
                    std::byte* out) {
  const auto seed_low = static_cast<uint32_t>(seed);
  const auto seed_high = static_cast<uint32_t>(seed >> 32);
  const auto first = static_cast<uint32_t>(first_place);
  for (size_t i = 0; i < num_values; ++i) {
    const float chance = Chance(first + static_cast<uint32_t>(i), seed_low, seed_high);
    // Above 0, where truncation rounds down.
    const auto above = static_cast<int32_t>(values[i] * factor + (128.0F + chance));
    const int32_t quantum = std::min(std::max(above - 128, -127), 127);
    StoreAt(out, i, static_cast<int8_t>(quantum));
  }
}

void DequantizeKernel(const std::byte* quanta, float* values, size_t num_values, float scale) {
  for (size_t i = 0; i < num_values; ++i)
    values[i] = static_cast<float>(static_cast<int32_t>(LoadAt<int8_t>(quanta, i))) * scale;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

HWY_EXPORT(LargestMagnitudeKernel);
HWY_EXPORT(QuantizeKernel);
HWY_EXPORT(DequantizeKernel);

constexpr uint8_t kEncodedVersion = 1;
constexpr std::array<absl::string_view, 6> kNames = {
    "none", "fp16", "bf16", "int8", "topk", "onebit"};

// The number of blocks of `size` values; the last one may be shorter.
constexpr size_t NumBlocks(size_t num_values, size_t size) {
  return (num_values + size - 1) / size;
}

struct BlockScale {
  float scale = 0;   // value = scale x quantum
  float factor = 0;  // quantum = factor x value; 0: all quanta are 0
};

BlockScale ScaleOf(float largest) {
  // So small that the factor would overflow: nothing is left of such a gradient.
  constexpr float kNegligible = 0x1p-100F;
  if (!std::isfinite(largest)) return {.scale = std::numeric_limits<float>::quiet_NaN()};
  if (largest < kNegligible) return {};
  float scale = largest / 127.0F;
  if (!std::isfinite(scale * 127.0F)) scale = std::nextafter(scale, 0.0F);
  return {.scale = scale, .factor = 127.0F / largest};
}

void EncodeInt8(std::span<const float> values, uint64_t seed, std::span<std::byte> encoded) {
  const size_t num_blocks = NumBlocks(values.size(), kInt8BlockValues);
  const std::span<std::byte> quanta = encoded.subspan(num_blocks * sizeof(float));
  for (size_t block = 0; block < num_blocks; ++block) {
    const size_t first = block * kInt8BlockValues;
    const size_t count = std::min(kInt8BlockValues, values.size() - first);
    const float largest = std::bit_cast<float>(
        HWY_DYNAMIC_DISPATCH(LargestMagnitudeKernel)(values.data() + first, count));
    const BlockScale scale = ScaleOf(largest);
    StoreNumber(scale.scale, encoded.subspan(block * sizeof(float)));
    if (scale.factor == 0) {
      std::memset(quanta.data() + first, 0, count);
    } else {
      HWY_DYNAMIC_DISPATCH(QuantizeKernel)
      (values.data() + first, count, scale.factor, seed, first, quanta.data() + first);
    }
  }
}

void DecodeInt8(std::span<const std::byte> encoded, std::span<float> values) {
  const size_t num_blocks = NumBlocks(values.size(), kInt8BlockValues);
  const std::span<const std::byte> quanta = encoded.subspan(num_blocks * sizeof(float));
  for (size_t block = 0; block < num_blocks; ++block) {
    const size_t first = block * kInt8BlockValues;
    const size_t count = std::min(kInt8BlockValues, values.size() - first);
    const auto scale = LoadNumber<float>(encoded.subspan(block * sizeof(float)));
    HWY_DYNAMIC_DISPATCH(DequantizeKernel)
    (quanta.data() + first, values.data() + first, count, scale);
  }
}

uint32_t MagnitudeOf(float x) {
  return std::bit_cast<uint32_t>(x) & 0x7FFFFFFFU;
}

// The largest magnitude, as bits, such that `rank` values are at or above it; `above` of them are
// above. Found digit by digit, from the highest.
struct Threshold {
  uint32_t magnitude = 0;
  size_t above = 0;
};
Threshold FindThreshold(std::span<const float> values, size_t rank) {
  constexpr uint32_t kDigits = 1U << 11;
  Threshold found;
  uint32_t known = 0;  // the magnitude's bits known so far
  for (const uint32_t shift : {21U, 10U, 0U}) {
    const uint32_t mask = (shift == 0 ? 1U << 10 : kDigits) - 1;
    std::array<uint32_t, kDigits> counts{};
    for (const float x : values) {
      const uint32_t magnitude = MagnitudeOf(x);
      if ((magnitude & known) == found.magnitude) ++counts[(magnitude >> shift) & mask];
    }
    uint32_t digit = mask;
    while (digit > 0 && found.above + counts[digit] < rank) found.above += counts[digit--];
    found.magnitude |= digit << shift;
    known |= mask << shift;
  }
  return found;
}

// Where the parts of topk's encoding begin.
struct TopKLayout {
  explicit TopKLayout(size_t num_values)
      : num_blocks(NumBlocks(num_values, kTopKBlockValues)),
        num_sent(NumBlocks(num_values, kTopKOneIn)),
        places(num_blocks * sizeof(uint32_t)),
        values(places + num_sent * sizeof(uint16_t)),
        end(values + num_sent * sizeof(float)) {}

  size_t num_blocks;
  size_t num_sent;
  size_t places;
  size_t values;
  size_t end;
};

void EncodeTopK(std::span<const float> values, std::span<std::byte> encoded) {
  const TopKLayout layout(values.size());
  const Threshold threshold = FindThreshold(values, layout.num_sent);
  size_t equal_left = layout.num_sent - threshold.above;
  size_t sent = 0;
  for (size_t block = 0; block < layout.num_blocks; ++block) {
    const size_t first = block * kTopKBlockValues;
    const size_t end = std::min(first + kTopKBlockValues, values.size());
    const size_t sent_before = sent;
    for (size_t i = first; i < end && sent < layout.num_sent; ++i) {
      const uint32_t magnitude = MagnitudeOf(values[i]);
      if (magnitude < threshold.magnitude) continue;
      if (magnitude == threshold.magnitude && equal_left == 0) continue;
      if (magnitude == threshold.magnitude) --equal_left;
      StoreNumber(static_cast<uint16_t>(i - first),
                  encoded.subspan(layout.places + sent * sizeof(uint16_t)));
      StoreNumber(values[i], encoded.subspan(layout.values + sent * sizeof(float)));
      ++sent;
    }
    StoreNumber(static_cast<uint32_t>(sent - sent_before),
                encoded.subspan(block * sizeof(uint32_t)));
  }
}

// Calls visit(index among the sent values, its place) for all sent values, in order; stops at the
// first error.
template <typename Visit>
absl::Status ForEachSent(std::span<const std::byte> encoded, size_t num_values, Visit visit) {
  const TopKLayout layout(num_values);
  const auto wrong = [&](const auto&... text) {
    return absl::DataLossError(absl::StrCat("topk of ", num_values, " values: ", text...));
  };
  size_t sent = 0;
  for (size_t block = 0; block < layout.num_blocks; ++block) {
    const size_t first = block * kTopKBlockValues;
    const size_t end = std::min(first + kTopKBlockValues, num_values);
    const size_t count = LoadNumber<uint32_t>(encoded.subspan(block * sizeof(uint32_t)));
    if (count > layout.num_sent - sent)
      return wrong("block ", block, " has ", count, " of the ", layout.num_sent - sent, " left");
    size_t least = first;
    for (const size_t stop = sent + count; sent < stop; ++sent) {
      const size_t place =
          first + LoadNumber<uint16_t>(encoded.subspan(layout.places + sent * sizeof(uint16_t)));
      if (place < least || place >= end)
        return wrong("place ", place, " of value ", sent, " is not in ", least, " to ", end - 1);
      visit(sent, place);
      least = place + 1;
    }
  }
  if (sent != layout.num_sent)
    return wrong("its blocks have ", sent, " values, expected ", layout.num_sent);
  return absl::OkStatus();
}

absl::Status DecodeTopK(std::span<const std::byte> encoded, std::span<float> values) {
  // Everything is checked before anything is written.
  PUSHPULL_RETURN_IF_ERROR(ForEachSent(encoded, values.size(), [](size_t, size_t) {}));
  std::fill(values.begin(), values.end(), 0.0F);
  const size_t first_value = TopKLayout(values.size()).values;
  return ForEachSent(encoded, values.size(), [&](size_t sent, size_t place) {
    values[place] = LoadNumber<float>(encoded.subspan(first_value + sent * sizeof(float)));
  });
}

void EncodeOneBit(std::span<const float> values, std::span<std::byte> encoded) {
  const size_t num_blocks = NumBlocks(values.size(), kOneBitBlockValues);
  const std::span<std::byte> bits = encoded.subspan(num_blocks * 2 * sizeof(float));
  std::fill(bits.begin(), bits.end(), std::byte{0});
  for (size_t block = 0; block < num_blocks; ++block) {
    const size_t first = block * kOneBitBlockValues;
    const size_t end = std::min(first + kOneBitBlockValues, values.size());
    std::array<double, 2> sums{};
    std::array<size_t, 2> counts{};
    for (size_t i = first; i < end; ++i) {
      const size_t bit = values[i] > 0 ? 1 : 0;
      sums[bit] += values[i];
      ++counts[bit];
      bits[i / 8] |= static_cast<std::byte>(bit << (i % 8));
    }
    for (size_t bit = 0; bit < 2; ++bit) {
      const double mean = counts[bit] == 0 ? 0 : sums[bit] / static_cast<double>(counts[bit]);
      StoreNumber(static_cast<float>(mean), encoded.subspan((2 * block + bit) * sizeof(float)));
    }
  }
}

void DecodeOneBit(std::span<const std::byte> encoded, std::span<float> values) {
  const size_t num_blocks = NumBlocks(values.size(), kOneBitBlockValues);
  const std::span<const std::byte> bits = encoded.subspan(num_blocks * 2 * sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t bit = std::to_integer<size_t>(bits[i / 8] >> (i % 8)) & 1;
    const size_t mean = 2 * (i / kOneBitBlockValues) + bit;
    values[i] = LoadNumber<float>(encoded.subspan(mean * sizeof(float)));
  }
}

absl::Status CheckHeader(Codec codec, std::span<const std::byte> encoded, size_t num_values) {
  const size_t expected = EncodedBytes(codec, num_values);
  const auto wrong = [&](const auto&... text) {
    return absl::DataLossError(
        absl::StrCat(ToString(codec), " of ", num_values, " values: ", text...));
  };
  if (encoded.size() != expected)
    return wrong("got ", encoded.size(), " bytes, expected ", expected);
  const auto version = LoadNumber<uint8_t>(encoded);
  if (version != kEncodedVersion)
    return wrong("version ", version, ", this program knows ", kEncodedVersion);
  const auto of = static_cast<Codec>(LoadNumber<uint8_t>(encoded.subspan(1)));
  if (of != codec) return wrong("the bytes are of ", ToString(of));
  if (LoadNumber<uint16_t>(encoded.subspan(2)) != 0) return wrong("bytes 2 and 3 are not zero");
  const auto count = LoadNumber<uint32_t>(encoded.subspan(4));
  if (count != num_values) return wrong("the bytes are of ", count, " values");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Codec> ParseCodec(absl::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<Codec>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("codec \"", text, "\" is none of none, fp16, bf16, int8, topk and onebit"));
}

std::string ToString(Codec codec) {
  if (IsKnown(codec)) return std::string(kNames[static_cast<size_t>(codec)]);
  return absl::StrCat("codec ", static_cast<unsigned>(codec));
}

size_t EncodedBytes(Codec codec, size_t num_values) {
  switch (codec) {
    case Codec::kNone:
      break;
    case Codec::kFloat16:
    case Codec::kBFloat16:
      return kEncodedHeaderBytes + num_values * sizeof(uint16_t);
    case Codec::kInt8:
      return kEncodedHeaderBytes + NumBlocks(num_values, kInt8BlockValues) * sizeof(float) +
             num_values;
    case Codec::kTopK:
      return kEncodedHeaderBytes + TopKLayout(num_values).end;
    case Codec::kOneBit:
      return kEncodedHeaderBytes + NumBlocks(num_values, kOneBitBlockValues) * 2 * sizeof(float) +
             (num_values + 7) / 8;
  }
  return num_values * sizeof(float);
}

uint64_t RoundingSeed(uint32_t worker, uint64_t step, uint64_t chunk) {
  // The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), once for each number.
  uint64_t seed = 0;
  for (const uint64_t number : {uint64_t{worker}, step, chunk}) {
    seed = (seed ^ number) + 0x9E3779B97F4A7C15U;
    seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9U;
    seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBU;
    seed ^= seed >> 31;
  }
  return seed;
}

uint64_t Encode(Codec codec,
                std::span<const float> values,
                uint64_t seed,
                std::span<std::byte> encoded) {
  PUSHPULL_CHECK(codec != Codec::kNone && encoded.size() == EncodedBytes(codec, values.size()));
  PUSHPULL_CHECK(values.size() <= std::numeric_limits<uint32_t>::max());
  StoreNumber(kEncodedVersion, encoded);
  StoreNumber(static_cast<uint8_t>(codec), encoded.subspan(1));
  StoreNumber(uint16_t{0}, encoded.subspan(2));
  StoreNumber(static_cast<uint32_t>(values.size()), encoded.subspan(4));
  const std::span<std::byte> body = encoded.subspan(kEncodedHeaderBytes);
  switch (codec) {
    case Codec::kNone:
      break;
    case Codec::kFloat16:
      return EncodeFloat16(values, body);
    case Codec::kBFloat16:
      return EncodeBFloat16(values, body);
    case Codec::kInt8:
      EncodeInt8(values, seed, body);
      break;
    case Codec::kTopK:
      EncodeTopK(values, body);
      break;
    case Codec::kOneBit:
      EncodeOneBit(values, body);
      break;
  }
  return 0;
}

absl::Status Decode(Codec codec, std::span<const std::byte> encoded, std::span<float> values) {
  PUSHPULL_CHECK(codec != Codec::kNone && IsKnown(codec));
  absl::Status header = CheckHeader(codec, encoded, values.size());
  if (!header.ok()) return header;
  const std::span<const std::byte> body = encoded.subspan(kEncodedHeaderBytes);
  switch (codec) {
    case Codec::kNone:
      break;
    case Codec::kFloat16:
      DecodeFloat16(body, values);
      break;
    case Codec::kBFloat16:
      DecodeBFloat16(body, values);
      break;
    case Codec::kInt8:
      DecodeInt8(body, values);
      break;
    case Codec::kTopK:
      return DecodeTopK(body, values);
    case Codec::kOneBit:
      DecodeOneBit(body, values);
      break;
  }
  return absl::OkStatus();
}

}  // namespace pushpull
#endif  // HWY_ONCE
