// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/chunk_encoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

constexpr size_t kValues = 600;

std::vector<float> Gradient(float scale = 1) {
  std::vector<float> values(kValues);
  for (size_t i = 0; i < kValues; ++i) values[i] = scale * static_cast<float>(i % 37) - 11.3F;
  return values;
}

std::span<const std::byte> BytesOf(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<std::byte> Copied(const EncodedGradient& encoded) {
  const std::span<const std::byte> bytes = encoded.bytes->bytes();
  return {bytes.begin(), bytes.end()};
}

class ChunkEncoderTest : public testing::Test {
 protected:
  ChunkEncoderTest() {
    encoder_.SetCodecs({Codec::kNone, Codec::kFloat16, Codec::kInt8, Codec::kInt8});
  }

  ChunkEncoder encoder_{WorkerId{3}};
};

TEST_F(ChunkEncoderTest, WithoutCodecGradientIsSentUnchanged) {
  const std::vector<float> gradient = Gradient();
  const EncodedGradient encoded = encoder_.Encode(ChunkId{0}, Step{1}, BytesOf(gradient));
  EXPECT_EQ(encoded.codec, Codec::kNone);
  EXPECT_EQ(encoded.bytes, nullptr);
}

TEST_F(ChunkEncoderTest, SmallGradientIsSentUnchanged) {
  const std::vector<float> few(4, 1.0F);
  EXPECT_EQ(encoder_.Encode(ChunkId{1}, Step{1}, BytesOf(few)).bytes, nullptr);
  const std::vector<float> more(5, 1.0F);
  EXPECT_NE(encoder_.Encode(ChunkId{1}, Step{1}, BytesOf(more)).bytes, nullptr);
}

TEST_F(ChunkEncoderTest, ReturnsWhatTheCodecWrites) {
  const std::vector<float> gradient = Gradient();
  const EncodedGradient encoded = encoder_.Encode(ChunkId{2}, Step{7}, BytesOf(gradient));
  std::vector<std::byte> expected(EncodedBytes(Codec::kInt8, kValues));
  Encode(Codec::kInt8, gradient, RoundingSeed(3, 7, 2), expected);
  EXPECT_EQ(encoded.codec, Codec::kInt8);
  EXPECT_EQ(Copied(encoded), expected);
}

TEST_F(ChunkEncoderTest, RoundingDiffersByStepChunkAndWorker) {
  const std::vector<float> gradient = Gradient();
  ChunkEncoder other(WorkerId{4});
  other.SetCodecs({Codec::kInt8, Codec::kInt8, Codec::kInt8});
  const auto first = Copied(encoder_.Encode(ChunkId{2}, Step{7}, BytesOf(gradient)));
  EXPECT_NE(Copied(encoder_.Encode(ChunkId{2}, Step{8}, BytesOf(gradient))), first);
  EXPECT_NE(Copied(encoder_.Encode(ChunkId{3}, Step{7}, BytesOf(gradient))), first);
  EXPECT_NE(Copied(other.Encode(ChunkId{2}, Step{7}, BytesOf(gradient))), first);
  EXPECT_EQ(Copied(encoder_.Encode(ChunkId{2}, Step{7}, BytesOf(gradient))), first);
}

TEST_F(ChunkEncoderTest, ReferencedBytesDoNotChange) {
  const std::vector<float> gradient = Gradient();
  const EncodedGradient held = encoder_.Encode(ChunkId{1}, Step{1}, BytesOf(gradient));
  const std::vector<std::byte> before = Copied(held);
  const std::vector<float> next = Gradient(-2);
  const EncodedGradient other = encoder_.Encode(ChunkId{1}, Step{2}, BytesOf(next));
  EXPECT_NE(other.bytes, held.bytes);
  EXPECT_EQ(Copied(held), before);
}

TEST_F(ChunkEncoderTest, UnreferencedMemoryIsReused) {
  const std::vector<float> gradient = Gradient();
  EncodedGradient encoded = encoder_.Encode(ChunkId{1}, Step{1}, BytesOf(gradient));
  const HostBuffer* const memory = encoded.bytes.get();
  encoded = {};
  EXPECT_EQ(encoder_.Encode(ChunkId{1}, Step{2}, BytesOf(gradient)).bytes.get(), memory);
}

TEST_F(ChunkEncoderTest, CountsOverflows) {
  std::vector<float> gradient = Gradient();
  gradient[5] = 1e6F;
  gradient[6] = -65520;
  gradient[7] = std::numeric_limits<float>::infinity();  // not the codec's doing
  EXPECT_EQ(encoder_.Encode(ChunkId{1}, Step{1}, BytesOf(gradient)).overflows, 2U);
}

// ---- codecs with a memory ----

// What a server adds for what was encoded.
std::vector<float> Added(const EncodedGradient& encoded, const std::vector<float>& gradient) {
  if (encoded.bytes == nullptr) return gradient;
  if (encoded.codec == Codec::kNone) {
    const std::span<const float> values = encoded.bytes->floats();
    return {values.begin(), values.end()};
  }
  std::vector<float> values(gradient.size());
  EXPECT_TRUE(Decode(encoded.codec, encoded.bytes->bytes(), values).ok());
  return values;
}

// One chunk of each codec that has a memory. Gradients are whole numbers, so that sums are exact.
class ChunkMemoryTest : public testing::TestWithParam<Codec> {
 protected:
  static constexpr ChunkId kChunk{1};

  ChunkMemoryTest() { encoder_.SetCodecs({Codec::kFloat16, GetParam()}); }

  static std::vector<float> GradientOf(uint64_t step) {
    std::vector<float> values(kValues);
    for (size_t i = 0; i < kValues; ++i)
      values[i] = static_cast<float>((step * 7 + i * 13) % 64) - 32;
    return values;
  }

  // Pushes `gradient` and counts it.
  EncodedGradient PushThis(uint64_t step,
                           const std::vector<float>& gradient,
                           const EncodeOptions& options) {
    EncodedGradient encoded = encoder_.Encode(kChunk, Step{step}, BytesOf(gradient), options);
    const std::vector<float> added = Added(encoded, gradient);
    for (size_t i = 0; i < kValues; ++i) {
      pushed_[i] += options.weight > 0 ? gradient[i] : 0;
      arrived_[i] += options.weight > 0 ? added[i] : 0;
    }
    return encoded;
  }
  EncodedGradient Push(uint64_t step, const EncodeOptions& options = {}) {
    return PushThis(step, GradientOf(step), options);
  }

  // Whether all that was pushed has arrived.
  bool IsAllThere() const {
    for (size_t i = 0; i < kValues; ++i) {
      if (std::abs(pushed_[i] - arrived_[i]) > 1e-2) return false;
    }
    return true;
  }

  ChunkEncoder encoder_{WorkerId{3}};
  std::vector<double> pushed_ = std::vector<double>(kValues, 0.0);
  std::vector<double> arrived_ = std::vector<double>(kValues, 0.0);
};

INSTANTIATE_TEST_SUITE_P(All,
                         ChunkMemoryTest,
                         testing::Values(Codec::kTopK, Codec::kOneBit),
                         [](const auto& codec) { return ToString(codec.param); });

TEST_P(ChunkMemoryTest, ResidualIsAddedToTheNextGradient) {
  const EncodedGradient first = Push(0);
  EXPECT_EQ(first.codec, GetParam());
  const std::vector<float> gradient = GradientOf(0);
  const std::vector<float> sent = Added(first, gradient);
  std::vector<float> expected = GradientOf(1);
  for (size_t i = 0; i < kValues; ++i) expected[i] += gradient[i] - sent[i];
  std::vector<std::byte> bytes(EncodedBytes(GetParam(), kValues));
  Encode(GetParam(), expected, 0, bytes);
  EXPECT_EQ(Copied(Push(1)), bytes);
}

TEST_P(ChunkMemoryTest, WholePushIncludesTheResidual) {
  encoder_.SendWhole(Step{5});
  for (uint64_t step = 0; step < 5; ++step) {
    Push(step);
    EXPECT_FALSE(IsAllThere());
    EXPECT_EQ(encoder_.TakeVerdict(), std::nullopt);
  }
  const EncodedGradient whole = Push(5);
  EXPECT_EQ(whole.codec, Codec::kNone);
  EXPECT_TRUE(IsAllThere());
  EXPECT_EQ(encoder_.TakeVerdict(), true);
  EXPECT_EQ(encoder_.TakeVerdict(), std::nullopt);
  const std::vector<std::byte> before = Copied(whole);
  EXPECT_EQ(Push(6).codec, GetParam());
  EXPECT_FALSE(IsAllThere());
  EXPECT_EQ(Copied(whole), before);  // it may have to be sent again
}

TEST_P(ChunkMemoryTest, LateOrderFails) {
  Push(0);
  Push(1);
  encoder_.SendWhole(Step{1});
  EXPECT_EQ(encoder_.TakeVerdict(), false);
  EXPECT_EQ(Push(2).codec, GetParam());
}

TEST_P(ChunkMemoryTest, OrderForASkippedStepFails) {
  Push(0);
  encoder_.SendWhole(Step{1});
  EXPECT_EQ(encoder_.TakeVerdict(), std::nullopt);
  EXPECT_EQ(Push(2).codec, GetParam());
  EXPECT_EQ(encoder_.TakeVerdict(), false);
}

TEST_P(ChunkMemoryTest, WithoutResidualTheVerdictIsImmediate) {
  encoder_.SendWhole(Step{1});
  EXPECT_EQ(Push(4).codec, GetParam());
  EXPECT_EQ(encoder_.TakeVerdict(), true);
}

TEST_P(ChunkMemoryTest, OrderCanBeForgotten) {
  encoder_.SendWhole(Step{1});
  Push(0);
  encoder_.ForgetWhole();
  EXPECT_EQ(Push(1).codec, GetParam());
  EXPECT_EQ(encoder_.TakeVerdict(), std::nullopt);
}

TEST_P(ChunkMemoryTest, PushOfWeightZeroKeepsTheResidual) {
  Push(0);
  EXPECT_EQ(Push(1, {.weight = 0}).bytes, nullptr);
  encoder_.SendWhole(Step{2});
  EXPECT_EQ(Push(2, {.weight = 0}).bytes, nullptr);
  EXPECT_EQ(encoder_.TakeVerdict(), false);
  encoder_.SendWhole(Step{3});
  Push(3);
  EXPECT_EQ(encoder_.TakeVerdict(), true);
  EXPECT_TRUE(IsAllThere());
}

TEST_P(ChunkMemoryTest, NonFiniteGradientIsSentUnchanged) {
  Push(0);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> gradient = GradientOf(1);
    gradient[17] = bad;
    EXPECT_EQ(encoder_.Encode(kChunk, Step{1}, BytesOf(gradient)).bytes, nullptr);
  }
  encoder_.SendWhole(Step{2});
  Push(2);
  EXPECT_TRUE(IsAllThere());
}

TEST_P(ChunkMemoryTest, BypassedCodecKeepsNoResidual) {
  Push(0);
  EXPECT_EQ(Push(1, {.is_bypassed = true}).codec, Codec::kNone);
  EXPECT_TRUE(IsAllThere());
  EXPECT_EQ(Push(2, {.is_bypassed = true}).bytes, nullptr);
}

TEST_P(ChunkMemoryTest, WithoutAGradientTheResidualIsKept) {
  Push(0);

  EXPECT_EQ(encoder_.Encode(kChunk, Step{1}, {}, {.has_gradient = false}).bytes, nullptr);
  EXPECT_EQ(
      encoder_.Encode(kChunk, Step{2}, {}, {.is_bypassed = true, .has_gradient = false}).bytes,
      nullptr);

  EXPECT_FALSE(IsAllThere());
  encoder_.SendWhole(Step{3});
  Push(3);
  EXPECT_TRUE(IsAllThere());
}

TEST_P(ChunkMemoryTest, WithoutAGradientAWholePushIsTheResidual) {
  const std::vector<float> gradient = GradientOf(0);
  const std::vector<float> sent = Added(Push(0), gradient);
  encoder_.SendWhole(Step{1});

  const EncodedGradient whole = encoder_.Encode(kChunk, Step{1}, {}, {.has_gradient = false});

  EXPECT_EQ(encoder_.TakeVerdict(), true);
  ASSERT_NE(whole.bytes, nullptr);
  EXPECT_EQ(whole.codec, Codec::kNone);
  for (size_t i = 0; i < kValues; ++i)
    EXPECT_EQ(whole.bytes->floats()[i], gradient[i] - sent[i]) << i;
  encoder_.SendWhole(Step{2});
  EXPECT_EQ(encoder_.Encode(kChunk, Step{2}, {}, {.has_gradient = false}).bytes, nullptr);
  EXPECT_EQ(encoder_.TakeVerdict(), true);
}

}  // namespace
}  // namespace pushpull
