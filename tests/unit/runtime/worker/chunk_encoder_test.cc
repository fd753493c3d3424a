// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/chunk_encoder.h"

#include <algorithm>
#include <limits>
#include <memory>
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

TEST_F(ChunkEncoderTest, WithoutACodecAGradientGoesAsItIs) {
  const std::vector<float> gradient = Gradient();
  const EncodedGradient encoded = encoder_.Encode(ChunkId{0}, Step{1}, BytesOf(gradient));
  EXPECT_EQ(encoded.codec, Codec::kNone);
  EXPECT_EQ(encoded.bytes, nullptr);
}

TEST_F(ChunkEncoderTest, SoDoesOneThatWouldNotBecomeSmaller) {
  const std::vector<float> few(4, 1.0F);
  EXPECT_EQ(encoder_.Encode(ChunkId{1}, Step{1}, BytesOf(few)).bytes, nullptr);
  const std::vector<float> more(5, 1.0F);
  EXPECT_NE(encoder_.Encode(ChunkId{1}, Step{1}, BytesOf(more)).bytes, nullptr);
}

TEST_F(ChunkEncoderTest, WhatComesIsWhatTheCodecWrites) {
  const std::vector<float> gradient = Gradient();
  const EncodedGradient encoded = encoder_.Encode(ChunkId{2}, Step{7}, BytesOf(gradient));
  std::vector<std::byte> expected(EncodedBytes(Codec::kInt8, kValues));
  Encode(Codec::kInt8, gradient, RoundingSeed(3, 7, 2), expected);
  EXPECT_EQ(encoded.codec, Codec::kInt8);
  EXPECT_EQ(Copied(encoded), expected);
}

TEST_F(ChunkEncoderTest, StepsAndChunksAndWorkersRoundDifferently) {
  const std::vector<float> gradient = Gradient();
  ChunkEncoder other(WorkerId{4});
  other.SetCodecs({Codec::kInt8, Codec::kInt8, Codec::kInt8});
  const auto first = Copied(encoder_.Encode(ChunkId{2}, Step{7}, BytesOf(gradient)));
  EXPECT_NE(Copied(encoder_.Encode(ChunkId{2}, Step{8}, BytesOf(gradient))), first);
  EXPECT_NE(Copied(encoder_.Encode(ChunkId{3}, Step{7}, BytesOf(gradient))), first);
  EXPECT_NE(Copied(other.Encode(ChunkId{2}, Step{7}, BytesOf(gradient))), first);
  EXPECT_EQ(Copied(encoder_.Encode(ChunkId{2}, Step{7}, BytesOf(gradient))), first);
}

TEST_F(ChunkEncoderTest, BytesThatSomebodyHoldsStayAsTheyAre) {
  const std::vector<float> gradient = Gradient();
  const EncodedGradient held = encoder_.Encode(ChunkId{1}, Step{1}, BytesOf(gradient));
  const std::vector<std::byte> before = Copied(held);
  const std::vector<float> next = Gradient(-2);
  const EncodedGradient other = encoder_.Encode(ChunkId{1}, Step{2}, BytesOf(next));
  EXPECT_NE(other.bytes, held.bytes);
  EXPECT_EQ(Copied(held), before);
}

TEST_F(ChunkEncoderTest, MemoryThatNobodyHoldsIsUsedAgain) {
  const std::vector<float> gradient = Gradient();
  EncodedGradient encoded = encoder_.Encode(ChunkId{1}, Step{1}, BytesOf(gradient));
  const HostBuffer* const memory = encoded.bytes.get();
  encoded = {};
  EXPECT_EQ(encoder_.Encode(ChunkId{1}, Step{2}, BytesOf(gradient)).bytes.get(), memory);
}

TEST_F(ChunkEncoderTest, CountsWhatTheCodecCannotHold) {
  std::vector<float> gradient = Gradient();
  gradient[5] = 1e6F;
  gradient[6] = -65520;
  gradient[7] = std::numeric_limits<float>::infinity();  // not the codec's doing
  EXPECT_EQ(encoder_.Encode(ChunkId{1}, Step{1}, BytesOf(gradient)).overflows, 2U);
}

}  // namespace
}  // namespace pushpull
