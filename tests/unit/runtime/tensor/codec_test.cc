// SPDX-License-Identifier: Apache-2.0
//
// Codecs against what their formats say, computed in double precision, with the same bits on every
// instruction set that this machine has; and bytes that no encoder has written.
#include "runtime/tensor/codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/highway.h>

namespace pushpull {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr Codec kAll[] = {
    Codec::kFloat16, Codec::kBFloat16, Codec::kInt8, Codec::kTopK, Codec::kOneBit};
// Around lengths of vectors and of int8's blocks.
constexpr size_t kLengths[] = {0, 1, 2, 7, 8, 9, 31, 33, 255, 256, 257, 512, 1027};

void OnEveryTarget(const std::function<void()>& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

std::vector<float> RandomFloats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> floats(count);
  for (float& x : floats) x = std::ldexp(normal(random), static_cast<int>(random() % 40) - 30);
  return floats;
}

std::vector<std::byte> Encoded(Codec codec, const std::vector<float>& values, uint64_t seed = 1) {
  std::vector<std::byte> bytes(EncodedBytes(codec, values.size()));
  Encode(codec, values, seed, bytes);
  return bytes;
}

std::vector<float> Decoded(Codec codec, const std::vector<std::byte>& bytes, size_t count) {
  std::vector<float> values(count);
  const absl::Status status = Decode(codec, bytes, values);
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

std::vector<float> Through(Codec codec, const std::vector<float>& values, uint64_t seed = 1) {
  return Decoded(codec, Encoded(codec, values, seed), values.size());
}

// The number of `digits` binary digits nearest to x, ties to even, no finer than 2^least_exponent.
double Nearest(double x, int digits, int least_exponent) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x) - (digits - 1), least_exponent);
  return std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
}

double NearestFloat16(double x) {
  const double nearest = Nearest(x, 11, -24);
  return std::abs(nearest) > 65504 ? std::copysign(kInfinity, x) : nearest;
}

double NearestBFloat16(double x) {
  const double nearest = Nearest(x, 8, -133);
  return std::abs(nearest) >= 0x1p128 ? std::copysign(kInfinity, x) : nearest;
}

// Bytes that something is wrong with, and what the refusal says.
struct Damage {
  std::string text;
  std::function<void(std::vector<std::byte>&)> make;
};

TEST(CodecTest, NamesAreParsedBack) {
  EXPECT_EQ(*ParseCodec(ToString(Codec::kNone)), Codec::kNone);
  for (const Codec codec : kAll) EXPECT_EQ(*ParseCodec(ToString(codec)), codec);
  EXPECT_TRUE(absl::IsInvalidArgument(ParseCodec("FP16").status()));
  EXPECT_NE(ParseCodec("zip").status().message().find("\"zip\""), std::string::npos);
  EXPECT_EQ(ToString(static_cast<Codec>(99)), "codec 99");
  EXPECT_FALSE(IsKnown(static_cast<Codec>(6)));
}

TEST(CodecTest, WireValuesNeverChange) {
  EXPECT_EQ(static_cast<int>(Codec::kFloat16), 1);
  EXPECT_EQ(static_cast<int>(Codec::kBFloat16), 2);
  EXPECT_EQ(static_cast<int>(Codec::kInt8), 3);
  EXPECT_EQ(static_cast<int>(Codec::kTopK), 4);
  EXPECT_EQ(static_cast<int>(Codec::kOneBit), 5);
}

TEST(CodecTest, LayoutOfVersionOne) {
  const std::vector<float> values = {1.0F, -2.0F};
  const auto bytes = [](std::initializer_list<int> numbers) {
    std::vector<std::byte> result;
    for (const int number : numbers) result.push_back(static_cast<std::byte>(number));
    return result;
  };
  EXPECT_EQ(Encoded(Codec::kFloat16, values), bytes({1, 1, 0, 0, 2, 0, 0, 0, 0, 0x3C, 0, 0xC0}));
  EXPECT_EQ(Encoded(Codec::kBFloat16, values),
            bytes({1, 2, 0, 0, 2, 0, 0, 0, 0x80, 0x3F, 0, 0xC0}));
  // A block's largest is 127 quanta, exactly; the scale is 2 / 127.
  const std::vector<std::byte> quantized = Encoded(Codec::kInt8, {-2.0F, 2.0F});
  EXPECT_EQ(quantized, bytes({1, 3, 0, 0, 2, 0, 0, 0, 0x04, 0x02, 0x81, 0x3C, 0x81, 0x7F}));
  // One is sent: the second.
  EXPECT_EQ(Encoded(Codec::kTopK, {1.0F, -2.0F, 0.5F}),
            bytes({1, 4, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0xC0}));
  // The mean of 0 and -2, that of 1 and 3, and the bits of the second and fourth.
  EXPECT_EQ(Encoded(Codec::kOneBit, {0.0F, 1.0F, -2.0F, 3.0F}),
            bytes({1, 5, 0, 0, 4, 0, 0, 0, 0, 0, 0x80, 0xBF, 0, 0, 0, 0x40, 0b1010}));
}

TEST(CodecTest, SizesInBytes) {
  EXPECT_EQ(EncodedBytes(Codec::kNone, 262144), 1U << 20);
  EXPECT_EQ(EncodedBytes(Codec::kFloat16, 262144), (1U << 19) + 8);
  EXPECT_EQ(EncodedBytes(Codec::kBFloat16, 3), 14U);
  EXPECT_EQ(EncodedBytes(Codec::kInt8, 262144), (1U << 18) + 4096 + 8);
  EXPECT_EQ(EncodedBytes(Codec::kInt8, 257), 8U + 8 + 257);
  EXPECT_EQ(EncodedBytes(Codec::kTopK, 262144), 8U + 4 * 4 + 6 * 2622);
  EXPECT_EQ(EncodedBytes(Codec::kTopK, 101), 8U + 4 + 6 * 2);
  EXPECT_EQ(EncodedBytes(Codec::kOneBit, 262144), 8U + 256 * 8 + 32768);
  EXPECT_EQ(EncodedBytes(Codec::kOneBit, 1025), 8U + 2 * 8 + 129);
}

TEST(CodecTest, Float16RoundTripsExactly) {
  std::vector<std::byte> all(EncodedBytes(Codec::kFloat16, 65536));
  Encode(Codec::kFloat16, std::vector<float>(65536), 0, all);
  for (size_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(&all[kEncodedHeaderBytes + 2 * i], &bits, sizeof bits);
  }
  OnEveryTarget([&] {
    const std::vector<float> values = Decoded(Codec::kFloat16, all, 65536);
    for (size_t i = 0; i < 65536; ++i) {
      const int exponent = static_cast<int>(i >> 10 & 31);
      const double fraction = static_cast<double>(i & 1023);
      const double sign = i >> 15 == 0 ? 1 : -1;
      if (exponent == 31) {
        ASSERT_EQ(std::isnan(values[i]), fraction != 0) << i;
        ASSERT_EQ(std::isinf(values[i]), fraction == 0) << i;
      } else {
        const double expected =
            exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
        ASSERT_EQ(values[i], sign * expected) << i;
        ASSERT_EQ(std::signbit(values[i]), i >> 15 == 1) << i;
      }
    }
    const std::vector<std::byte> again = Encoded(Codec::kFloat16, values);
    for (size_t i = 0; i < 65536; ++i) {
      if (std::isnan(values[i])) continue;
      ASSERT_EQ(std::memcmp(&again[8 + 2 * i], &all[8 + 2 * i], 2), 0) << i;
    }
  });
}

TEST(CodecTest, RoundsToNearestTiesToEven) {
  std::vector<float> values = RandomFloats(20000, 5);
  for (const float x : {0.0F,         -0.0F,
                        65504.0F,     65519.99F,
                        65520.0F,     -65520.0F,
                        1e30F,        0x1p-14F,
                        0x1.FFCp-15F, 0x1.FFEp-15F,
                        0x1p-24F,     0x1p-25F,
                        0x1.8p-24F,   0x1.000002p-25F,
                        1e-40F,       2049.0F,
                        2051.0F,      kInfinity,
                        -kInfinity,   3.4e38F,
                        -3.4028e38F,  std::numeric_limits<float>::max(),
                        0x1.01p0F,    0x1.03p0F,
                        0x1p-133F,    0x1p-134F}) {
    values.push_back(x);
  }
  OnEveryTarget([&] {
    const std::vector<float> half = Through(Codec::kFloat16, values);
    const std::vector<float> brain = Through(Codec::kBFloat16, values);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(half[i], NearestFloat16(values[i])) << values[i];
      ASSERT_EQ(std::signbit(half[i]), std::signbit(values[i])) << values[i];
      ASSERT_EQ(brain[i], NearestBFloat16(values[i])) << values[i];
      ASSERT_EQ(std::signbit(brain[i]), std::signbit(values[i])) << values[i];
    }
  });
}

TEST(CodecTest, OverflowsAreCountedAndBecomeInfinite) {
  const std::vector<float> values = {
      65504, 65519, 65520, -70000, 1e30F, kInfinity, kNaN, -kInfinity};
  std::vector<std::byte> bytes(EncodedBytes(Codec::kFloat16, values.size()));
  EXPECT_EQ(Encode(Codec::kFloat16, values, 0, bytes), 3U);
  const std::vector<float> back = Decoded(Codec::kFloat16, bytes, values.size());
  EXPECT_EQ(back[1], 65504);
  EXPECT_EQ(back[2], kInfinity);
  EXPECT_EQ(back[3], -kInfinity);
  EXPECT_TRUE(std::isnan(back[6]));

  const std::vector<float> large = {std::numeric_limits<float>::max(), 3.38e38F, kInfinity, kNaN};
  std::vector<std::byte> brain(EncodedBytes(Codec::kBFloat16, large.size()));
  EXPECT_EQ(Encode(Codec::kBFloat16, large, 0, brain), 1U);
}

TEST(CodecTest, NaNStaysNaN) {
  // The highest bits of its fraction, which the halves keep, may all be zero.
  const std::vector<float> values = {std::bit_cast<float>(0x7F800001U),
                                     std::bit_cast<float>(0xFFFFFFFFU),
                                     std::bit_cast<float>(0x7FFFFFFFU)};
  OnEveryTarget([&] {
    for (const Codec codec : kAll) {
      if (codec == Codec::kTopK) continue;  // sends the first of them
      for (const float x : Through(codec, values)) EXPECT_TRUE(std::isnan(x)) << ToString(codec);
    }
  });
}

TEST(CodecTest, Int8IsUnbiasedWithinOneQuantum) {
  const std::vector<float> values = RandomFloats(1000, 9);
  std::vector<double> sums(values.size(), 0);
  constexpr int kSeeds = 2000;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const std::vector<float> back =
        Through(Codec::kInt8, values, RoundingSeed(3, static_cast<uint64_t>(seed), 5));
    for (size_t i = 0; i < values.size(); ++i) sums[i] += back[i];
  }
  for (size_t i = 0; i < values.size(); ++i) {
    float largest = 0;
    const size_t block = i / kInt8BlockValues * kInt8BlockValues;
    for (size_t j = block; j < std::min(block + kInt8BlockValues, values.size()); ++j)
      largest = std::max(largest, std::abs(values[j]));
    const double quantum = largest / 127;
    // One rounding has a standard deviation of half a quantum at most; six of those of the mean.
    EXPECT_NEAR(sums[i] / kSeeds, values[i], 6 * 0.5 * quantum / std::sqrt(kSeeds)) << i;
    EXPECT_NEAR(Through(Codec::kInt8, values, i)[i], values[i], quantum * 1.0001) << i;
  }
}

TEST(CodecTest, SeedDeterminesTheBytes) {
  const std::vector<float> values = RandomFloats(1027, 11);
  const uint64_t seed = RoundingSeed(1, 2, 3);
  EXPECT_EQ(Encoded(Codec::kInt8, values, seed), Encoded(Codec::kInt8, values, seed));
  for (const uint64_t other : {RoundingSeed(2, 2, 3),
                               RoundingSeed(1, 3, 3),
                               RoundingSeed(1, 2, 4),
                               RoundingSeed(2, 1, 3),
                               RoundingSeed(3, 2, 1)}) {
    EXPECT_NE(other, seed);
    EXPECT_NE(Encoded(Codec::kInt8, values, other), Encoded(Codec::kInt8, values, seed));
  }
}

TEST(CodecTest, Int8MarksBlocksWithNonFiniteValues) {
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    std::vector<float> values(600, 1.0F);
    values[300] = bad;
    const std::vector<float> back = Through(Codec::kInt8, values);
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(std::isnan(back[i]), i / kInt8BlockValues == 1) << i;
  }
}

TEST(CodecTest, Int8EncodesExtremeMagnitudes) {
  OnEveryTarget([] {
    EXPECT_EQ(Through(Codec::kInt8, {0.0F, -0.0F, 0.0F}), std::vector<float>(3, 0.0F));
    EXPECT_EQ(Through(Codec::kInt8, {1e-40F, -1e-38F}), std::vector<float>(2, 0.0F));
    const float largest = std::numeric_limits<float>::max();
    const std::vector<float> back = Through(Codec::kInt8, {largest, -largest, 0.0F});
    EXPECT_NEAR(back[0] / largest, 1, 1e-6);
    EXPECT_NEAR(back[1] / largest, -1, 1e-6);
    EXPECT_EQ(back[2], 0.0F);
  });
}

TEST(CodecTest, TopKSendsTheLargestPercentExactly) {
  for (const size_t length : {size_t{1}, size_t{99}, size_t{101}, size_t{1027}, size_t{140'000}}) {
    SCOPED_TRACE(length);
    const std::vector<float> values = RandomFloats(length, static_cast<uint32_t>(length));
    std::vector<float> magnitudes;
    magnitudes.reserve(length);
    for (const float x : values) magnitudes.push_back(std::abs(x));
    const size_t count = (length + 99) / 100;
    std::nth_element(magnitudes.begin(),
                     magnitudes.begin() + static_cast<ptrdiff_t>(count - 1),
                     magnitudes.end(),
                     std::greater<>());
    const float least = magnitudes[count - 1];
    const std::vector<float> back = Through(Codec::kTopK, values);
    size_t sent = 0;
    for (size_t i = 0; i < length; ++i) {
      EXPECT_TRUE(std::abs(values[i]) <= least || back[i] == values[i]) << i;
      if (back[i] == 0) continue;
      EXPECT_EQ(back[i], values[i]) << i;
      EXPECT_GE(std::abs(back[i]), least) << i;
      ++sent;
    }
    EXPECT_EQ(sent, count);
  }
}

TEST(CodecTest, TopKPrefersTheFirstOfEqualValues) {
  const std::vector<float> back = Through(Codec::kTopK, std::vector<float>(250, -3.0F));
  for (size_t i = 0; i < back.size(); ++i) EXPECT_EQ(back[i], i < 3 ? -3.0F : 0.0F) << i;
}

TEST(CodecTest, TopKSendsNonFiniteValuesFirst) {
  std::vector<float> values(150, 1e30F);
  values[70] = kNaN;
  values[149] = -kInfinity;
  const std::vector<float> back = Through(Codec::kTopK, values);
  EXPECT_TRUE(std::isnan(back[70]));
  EXPECT_EQ(back[149], -kInfinity);
}

TEST(CodecTest, OneBitKeepsSignsAndTheirMeans) {
  const std::vector<float> values = RandomFloats(2500, 5);
  const std::vector<float> back = Through(Codec::kOneBit, values);
  for (size_t first = 0; first < values.size(); first += kOneBitBlockValues) {
    const size_t end = std::min(first + kOneBitBlockValues, values.size());
    double sums[2] = {};
    double counts[2] = {};
    for (size_t i = first; i < end; ++i) {
      sums[values[i] > 0] += values[i];
      counts[values[i] > 0] += 1;
    }
    for (size_t i = first; i < end; ++i) {
      const size_t bit = values[i] > 0;
      EXPECT_FLOAT_EQ(back[i], static_cast<float>(sums[bit] / counts[bit])) << i;
    }
  }
}

TEST(CodecTest, InvalidIndicesAreRejected) {
  constexpr size_t kCount = 70'000;  // 700 sent, in two blocks
  const std::vector<std::byte> right = Encoded(Codec::kTopK, RandomFloats(kCount, 1));
  constexpr size_t kCounts = kEncodedHeaderBytes;
  constexpr size_t kPlaces = kCounts + 2 * sizeof(uint32_t);
  const auto put = [](auto number, size_t at) {
    return [=](std::vector<std::byte>& bytes) { std::memcpy(&bytes[at], &number, sizeof number); };
  };
  const auto first_count = [](const std::vector<std::byte>& bytes) {
    uint32_t count = 0;
    std::memcpy(&count, &bytes[kCounts], sizeof count);
    return count;
  };
  const uint32_t in_first = first_count(right);
  const Damage damages[] = {
      {"block 0 has 701 of the 700 left", put(uint32_t{701}, kCounts)},
      {"block 0 has 4294967295 of the 700 left", put(~uint32_t{0}, kCounts)},
      {"values, expected 700", put(uint32_t{0}, kCounts + sizeof(uint32_t))},
      {"is not in", put(in_first + 1, kCounts)},
      {"of value 2 is not in 65536 to 65535", put(uint16_t{65535}, kPlaces + 2)},
      {"is not in 65536 to 69999", put(uint16_t{65535}, kPlaces + 2 * size_t{in_first})},
      {"is not in", put(uint16_t{0}, kPlaces + 2)},
  };
  for (const Damage& damage : damages) {
    std::vector<std::byte> bytes = right;
    damage.make(bytes);
    std::vector<float> values(kCount, 7.0F);
    const absl::Status status = Decode(Codec::kTopK, bytes, values);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_NE(status.message().find(damage.text), std::string::npos)
        << status << " has not: " << damage.text;
    EXPECT_EQ(values, std::vector<float>(kCount, 7.0F));
  }
}

TEST(CodecTest, EveryInstructionSetGivesTheSameBytes) {
  for (const Codec codec : kAll) {
    for (const size_t length : kLengths) {
      SCOPED_TRACE(ToString(codec) + " of " + std::to_string(length));
      const std::vector<float> values = RandomFloats(length, 100 + static_cast<uint32_t>(length));
      const std::vector<std::byte> expected = Encoded(codec, values);
      const std::vector<float> back = Decoded(codec, expected, length);
      OnEveryTarget([&] {
        EXPECT_EQ(Encoded(codec, values), expected);
        const std::vector<float> again = Decoded(codec, expected, length);
        EXPECT_TRUE(std::equal(again.begin(), again.end(), back.begin(), back.end()));
      });
    }
  }
}

TEST(CodecTest, WorksAtAnyAlignment) {
  const std::vector<float> values = RandomFloats(300, 3);
  for (const Codec codec : kAll) {
    const std::vector<std::byte> expected = Encoded(codec, values);
    for (size_t shift = 1; shift < 4; ++shift) {
      std::vector<std::byte> memory(expected.size() + shift);
      const std::span<std::byte> place = std::span(memory).subspan(shift);
      Encode(codec, values, 1, place);
      EXPECT_EQ(std::vector<std::byte>(place.begin(), place.end()), expected);
      std::vector<float> back(values.size());
      ASSERT_TRUE(Decode(codec, place, back).ok());
      EXPECT_EQ(back, Decoded(codec, expected, values.size()));
    }
  }
}

TEST(CodecTest, InvalidBytesAreRejected) {
  const Damage damages[] = {
      {"bytes, expected", [](auto& bytes) { bytes.pop_back(); }},
      {"bytes, expected", [](auto& bytes) { bytes.push_back(std::byte{0}); }},
      {"got 0 bytes", [](auto& bytes) { bytes.clear(); }},
      {"got 7 bytes", [](auto& bytes) { bytes.resize(7); }},
      {"version 0", [](auto& bytes) { bytes[0] = std::byte{0}; }},
      {"version 2, this program knows 1", [](auto& bytes) { bytes[0] = std::byte{2}; }},
      {"the bytes are of codec 77", [](auto& bytes) { bytes[1] = std::byte{77}; }},
      {"the bytes are of none", [](auto& bytes) { bytes[1] = std::byte{0}; }},
      {"bytes 2 and 3 are not zero", [](auto& bytes) { bytes[3] = std::byte{1}; }},
      {"the bytes are of 11 values", [](auto& bytes) { bytes[4] = std::byte{11}; }},
      {"the bytes are of 16777226 values", [](auto& bytes) { bytes[7] = std::byte{1}; }},
  };
  for (const Codec codec : kAll) {
    for (const Damage& damage : damages) {
      std::vector<std::byte> bytes = Encoded(codec, std::vector<float>(10, 1.0F));
      damage.make(bytes);
      std::vector<float> values(10, 7.0F);
      const absl::Status status = Decode(codec, bytes, values);
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_NE(status.message().find(damage.text), std::string::npos) << status;
      EXPECT_NE(status.message().find(ToString(codec)), std::string::npos) << status;
      EXPECT_EQ(values, std::vector<float>(10, 7.0F));
    }
  }
}

TEST(CodecTest, RandomBytesWithAValidHeaderDecode) {
  std::mt19937 random(17);
  for (int round = 0; round < 200; ++round) {
    for (const Codec codec : kAll) {
      const size_t length = random() % 600;
      std::vector<std::byte> bytes = Encoded(codec, std::vector<float>(length, 1.0F));
      if (codec == Codec::kTopK) continue;  // not any places will do
      for (size_t i = kEncodedHeaderBytes; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>(random());
      std::vector<float> values(length);
      EXPECT_TRUE(Decode(codec, bytes, values).ok());
    }
  }
}

}  // namespace
}  // namespace pushpull
