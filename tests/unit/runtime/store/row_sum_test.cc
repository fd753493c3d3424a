// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/row_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/store/step_accumulator.h"
#include "tests/unit/runtime/store/sparse_rows_of.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(RowSumTest, RowsOfBothAreAddedAndOthersKept) {
  const HostBuffer sum = EncodeRows({{1, {1, 2}}, {5, {3, 4}}}, 2);
  const HostBuffer contribution = EncodeRows({{0, {10, 20}}, {5, {30, 40}}, {9, {50, 60}}}, 2);

  const HostBuffer both = AddSparseRows(sum, contribution, 2, 0.5F);

  EXPECT_THAT(DecodeRows(both, 2),
              ElementsAre(Pair(0, ElementsAre(5, 10)),
                          Pair(1, ElementsAre(1, 2)),
                          Pair(5, ElementsAre(18, 24)),
                          Pair(9, ElementsAre(25, 30))));
}

TEST(RowSumTest, TheMeanCountsWorkersWithoutTheRow) {
  StepAccumulator accumulator = StepAccumulator::OfRows(Reduction::kMean, 1);
  HostBuffer first = EncodeRows({{1, {8}}}, 1);
  HostBuffer second = EncodeRows({{1, {4}}, {2, {4}}}, 1);
  HostBuffer third = EncodeRows({}, 1);

  accumulator.Add(first, 2);
  accumulator.Add(second, 1);
  accumulator.Add(third, 1);

  const SparseRows sum = *ParseSparseRows(accumulator.sum_bytes(), 1);
  EXPECT_THAT(sum.keys, ElementsAre(1, 2));
  EXPECT_FLOAT_EQ(static_cast<float>(sum.values[0] * accumulator.scale()), 5);
  EXPECT_FLOAT_EQ(static_cast<float>(sum.values[1] * accumulator.scale()), 1);
}

TEST(RowSumTest, KnowsWhenFiniteRowsAddUpToMore) {
  StepAccumulator accumulator = StepAccumulator::OfRows(Reduction::kSum, 1);
  HostBuffer first = EncodeRows({{1, {3e38F}}, {2, {1}}}, 1);
  HostBuffer second = EncodeRows({{2, {3e38F}}, {3, {3e38F}}}, 1);
  HostBuffer third = EncodeRows({{3, {3e38F}}}, 1);
  accumulator.Add(first, 1);

  accumulator.Add(second, 1);
  EXPECT_TRUE(accumulator.is_finite());
  accumulator.Add(third, 1);

  EXPECT_FALSE(accumulator.is_finite());
}

TEST(RowSumTest, NoRowsAtAllAreASum) {
  StepAccumulator accumulator = StepAccumulator::OfRows(Reduction::kSum, 3);
  HostBuffer first = EncodeRows({}, 3);
  HostBuffer second = EncodeRows({}, 3);

  accumulator.Add(first, 1);
  accumulator.Add(second, 1);

  EXPECT_TRUE(accumulator.has_sum());
  EXPECT_TRUE(accumulator.sum_bytes().empty());
}

}  // namespace
}  // namespace pushpull
