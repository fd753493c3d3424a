// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/gradient_clip.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr ChunkId kFirstOfA{0};
constexpr ChunkId kSecondOfA{1};
constexpr ChunkId kOfB{3};
constexpr Step kClippedStep{7};
constexpr Step kClippedAfter{8};

PlacedTensor ClippedTensor(uint32_t id, uint64_t first_chunk, size_t chunks, double clip_norm) {
  PlacedTensor tensor{.id = TensorId{id},
                      .spec = {.name = "t", .dims = {1}},
                      .first_chunk = ChunkId{first_chunk},
                      .shards = std::vector<ShardId>(chunks)};
  tensor.spec.clip_norm = clip_norm;
  return tensor;
}

// Two clipped tensors, one of two chunks, and one that is not.
class GradientClipTest : public testing::Test {
 protected:
  GradientClipTest() {
    clip_.SetTensors(
        {ClippedTensor(0, 0, 2, 1), ClippedTensor(1, 2, 1, 0), ClippedTensor(2, 3, 1, 1)});
  }
  GradientClip clip_;
};

TEST(ClipScaleTest, IsThatOfTorch) {
  EXPECT_DOUBLE_EQ(ClipScale(1, 16), 1 / (4 + 1e-6));
  EXPECT_EQ(ClipScale(5, 16), 1);
  EXPECT_EQ(ClipScale(1, 0), 1);
  EXPECT_EQ(ClipScale(1, INFINITY), 0);
  EXPECT_EQ(ClipScale(1, NAN), 1);
}

TEST_F(GradientClipTest, OnlyChunksOfTensorsWithALimitAreClipped) {
  EXPECT_THAT(clip_.chunks(), ElementsAre(kFirstOfA, kSecondOfA, kOfB));
  EXPECT_FALSE(clip_.Clips(ChunkId{2}));
  GradientClip none;
  none.SetTensors({ClippedTensor(0, 0, 2, 0)});
  EXPECT_THAT(none.chunks(), IsEmpty());
}

TEST_F(GradientClipTest, TheScaleIsKnownWithTheLastChunk) {
  clip_.OnSquares(kOfB, kClippedStep, 9);
  clip_.OnSquares(kFirstOfA, kClippedStep, 4);
  EXPECT_EQ(clip_.ScaleOf(kClippedStep), std::nullopt);
  EXPECT_FALSE(clip_.IsAwaited(kSecondOfA, kClippedStep));

  clip_.OnSquares(kSecondOfA, kClippedStep, 3);

  EXPECT_EQ(clip_.ScaleOf(kClippedStep), ClipScale(1, 16));
  EXPECT_TRUE(clip_.IsAwaited(kSecondOfA, kClippedStep));
}

TEST_F(GradientClipTest, AReportIsReplacedUntilTheScaleIsKnown) {
  clip_.OnSquares(kOfB, kClippedStep, 100);
  clip_.OnSquares(kOfB, kClippedStep, 9);
  clip_.OnSquares(kFirstOfA, kClippedStep, 4);
  clip_.OnSquares(kSecondOfA, kClippedStep, 3);

  clip_.OnSquares(kSecondOfA, kClippedStep, 50);

  EXPECT_EQ(clip_.ScaleOf(kClippedStep), ClipScale(1, 16));
}

TEST_F(GradientClipTest, AChunkThatIsPastTheStepTellsItsScale) {
  clip_.OnSquares(kOfB, kClippedStep, 9);

  clip_.OnPassed(kFirstOfA, kClippedStep, 0.5);

  EXPECT_EQ(clip_.ScaleOf(kClippedStep), 0.5);
  EXPECT_TRUE(clip_.IsAwaited(kOfB, kClippedStep));
  EXPECT_FALSE(clip_.IsAwaited(kFirstOfA, kClippedStep));
}

TEST_F(GradientClipTest, AChunkThatIsPastTheStepWithoutAScaleIsLeftOut) {
  clip_.OnSquares(kOfB, kClippedStep, 9);
  clip_.OnSquares(kFirstOfA, kClippedStep, 16);

  clip_.OnPassed(kSecondOfA, kClippedStep, 0);

  EXPECT_EQ(clip_.ScaleOf(kClippedStep), ClipScale(1, 25));
}

TEST_F(GradientClipTest, TwoStepsAreKeptApart) {
  for (const ChunkId chunk : clip_.chunks()) clip_.OnSquares(chunk, kClippedStep, 12);
  clip_.OnSquares(kOfB, kClippedAfter, 1);

  EXPECT_EQ(clip_.ScaleOf(kClippedStep), ClipScale(1, 36));
  EXPECT_EQ(clip_.ScaleOf(kClippedAfter), std::nullopt);

  clip_.OnSquares(kOfB, Step{9}, 1);
  clip_.OnSquares(kOfB, kClippedStep, 1);  // forgotten by now

  EXPECT_EQ(clip_.ScaleOf(kClippedStep), std::nullopt);
}

TEST_F(GradientClipTest, AStepHasAllClippedTensorsWithTheLast) {
  EXPECT_FALSE(clip_.OnTensorPushed(kClippedStep));
  EXPECT_FALSE(clip_.OnTensorPushed(kClippedAfter));
  EXPECT_TRUE(clip_.OnTensorPushed(kClippedStep));
}

}  // namespace
}  // namespace pushpull
