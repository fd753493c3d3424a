// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/state_rows.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;

// Two rows of five values, a float each; the chunk has the values 2 and 3.
constexpr ChunkPart kPart{.tensor_bytes = 20, .offset = 8, .bytes = 8};

TEST(StateRowsTest, ChunkHasItsPartOfEachRow) {
  const std::vector<float> tensor = {0, 1, 2, 3, 4, 10, 11, 12, 13, 14};
  std::vector<float> chunk(4);

  ASSERT_EQ(StateBytesOf(kPart, 40), 16U);
  GatherState(kPart, std::as_bytes(std::span(tensor)), std::as_writable_bytes(std::span(chunk)));

  EXPECT_THAT(chunk, ElementsAre(2, 3, 12, 13));
}

TEST(StateRowsTest, OtherChunksKeepTheirs) {
  const std::vector<float> chunk = {2, 3, 12, 13};
  std::vector<float> tensor(10, -1);

  ScatterState(kPart, std::as_bytes(std::span(chunk)), std::as_writable_bytes(std::span(tensor)));

  EXPECT_THAT(tensor, ElementsAre(-1, -1, 2, 3, -1, -1, -1, 12, 13, -1));
}

}  // namespace
}  // namespace pushpull
