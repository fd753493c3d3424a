// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/wire_values.h"

#include <cstring>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tensor/master_values.h"
#include "tests/unit/runtime/server/one_shard.h"

namespace pushpull {
namespace {

using testing::Each;

std::vector<float> Widened(DType dtype, const HostBuffer& value) {
  std::vector<float> values(value.num_bytes() / DTypeBytes(dtype));
  Widen(dtype, value.bytes(), values);
  return values;
}

// The chunk's value becomes `value` with the next step.
void Advance(Chunk& chunk, float value) {
  ChunkSnapshot next{.version = Step{chunk.state().version().value() + 1},
                     .value = Floats(kFloats, value),
                     .optimizer_state = {}};
  ASSERT_TRUE(chunk.Restore(std::move(next)).ok());
}

TEST(WireValuesTest, AVersionIsRoundedOnceForAll) {
  OneShard one(OptimizerKind::kSum, 0, DType::kBFloat16);
  WireValues values;
  Advance(one.chunk(), 1.001F);
  EXPECT_EQ(WireBytes(one.chunk()), 2 * kFloats);

  const auto first = values.Of(one.chunk());
  const auto again = values.Of(one.chunk());

  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(first->value, again->value);
  EXPECT_THAT(Widened(DType::kBFloat16, *first->value), Each(1));
}

TEST(WireValuesTest, ANewVersionLeavesTheOneThatIsBeingSent) {
  OneShard one(OptimizerKind::kSum, 0, DType::kFloat16);
  WireValues values;
  Advance(one.chunk(), 2);
  const auto before = values.Of(one.chunk());
  Advance(one.chunk(), 3);

  const auto after = values.Of(one.chunk());

  EXPECT_THAT(Widened(DType::kFloat16, *before->value), Each(2));
  EXPECT_THAT(Widened(DType::kFloat16, *after->value), Each(3));
}

TEST(WireValuesTest, OverflowsAreToldWithTheFirstVersion) {
  OneShard one(OptimizerKind::kSum, 0, DType::kFloat16);
  WireValues values;
  std::vector<uint64_t> told;
  for (const float value : {1.0F, 70'000.0F, 80'000.0F, 1.0F, 70'000.0F}) {
    Advance(one.chunk(), value);
    told.push_back(values.Of(one.chunk())->first_overflows);
  }
  EXPECT_THAT(told, testing::ElementsAre(0, kFloats, 0, 0, kFloats));
}

TEST(WireValuesTest, Float32IsTheValueItself) {
  OneShard one;
  WireValues values;
  Advance(one.chunk(), 1.001F);

  EXPECT_EQ(values.Of(one.chunk())->value, one.chunk().state().value());
}

TEST(WireValuesTest, AnInitialHalfMayHaveAStateBehindIt) {
  OneShard one(OptimizerKind::kAdagrad, 0, DType::kBFloat16);
  const std::vector<float> value = {1.5F, -2, 0, 96};
  const std::vector<float> state = {7, 8.001F, 9, 10};
  HostBuffer received = *HostBuffer::Uninitialized(6 * kFloats);
  Narrow(DType::kBFloat16, value, received.bytes().first(2 * kFloats));
  std::memcpy(received.bytes().subspan(2 * kFloats).data(), state.data(), 4 * kFloats);

  const absl::StatusOr<HostBuffer> master = WithMasterValues(one.chunk(), std::move(received));

  ASSERT_TRUE(master.ok());
  EXPECT_TRUE(one.chunk().state().HasStateIn(master->num_bytes()));
  EXPECT_THAT(master->floats(), testing::ElementsAre(1.5F, -2, 0, 96, 7, 8.001F, 9, 10));
}

}  // namespace
}  // namespace pushpull
