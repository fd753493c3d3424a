// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/chunk_copies.h"

#include <array>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

class ChunkCopiesTest : public testing::Test {
 protected:
  ChunkCopiesTest() { copies_.SetChunks(1); }
  const std::optional<ChunkCopies::Copy>& Copy() const { return copies_.Find(0); }

  ChunkCopies copies_;
  std::array<std::byte, 16> place_{};
  std::array<std::byte, 16> elsewhere_{};
};

TEST_F(ChunkCopiesTest, KeptValueIsACopyAtItsNewestPlace) {
  copies_.Take(0, {place_, Step{3}}, true);
  copies_.Take(0, {elsewhere_, Step{4}}, true);

  ASSERT_TRUE(Copy().has_value());
  EXPECT_EQ(Copy()->value.data(), elsewhere_.data());
  EXPECT_EQ(Copy()->version, Step{4});
}

TEST_F(ChunkCopiesTest, ReadToOtherMemoryChangesNothing) {
  copies_.Take(0, {place_, Step{3}}, true);

  copies_.Take(0, {elsewhere_, Step{4}}, false);

  EXPECT_EQ(Copy()->value.data(), place_.data());
  EXPECT_EQ(Copy()->version, Step{3});
}

TEST_F(ChunkCopiesTest, ReadToSameMemoryUpdatesTheCopy) {
  copies_.Take(0, {place_, Step{3}}, true);

  copies_.Take(0, {place_, Step{4}}, false);

  EXPECT_EQ(Copy()->version, Step{4});
}

TEST_F(ChunkCopiesTest, ReadToAPartInvalidatesTheCopy) {
  copies_.Take(0, {std::span(place_).first(8), Step{3}}, true);

  copies_.Take(0, {std::span(place_).subspan(4, 8), Step{4}}, false);

  EXPECT_FALSE(Copy().has_value());
}

TEST_F(ChunkCopiesTest, ValueThatIsNotKeptIsNoCopy) {
  copies_.Take(0, {place_, Step{3}}, false);

  EXPECT_FALSE(Copy().has_value());
}

TEST_F(ChunkCopiesTest, OverlappingGradientInvalidatesTheCopy) {
  copies_.Take(0, {std::span(place_).first(8), Step{3}}, true);
  copies_.Invalidate(0, std::span(place_).subspan(8));
  EXPECT_TRUE(Copy().has_value());

  copies_.Invalidate(0, place_);

  EXPECT_FALSE(Copy().has_value());
}

}  // namespace
}  // namespace pushpull
