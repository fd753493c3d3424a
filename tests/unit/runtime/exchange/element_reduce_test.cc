// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/element_reduce.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;

template <typename Element>
std::vector<Element> Reduced(Reduction reduction,
                             std::vector<Element> into,
                             const std::vector<Element>& from) {
  const ArrayValues to = ValuesOf(std::span<Element>(into));
  Reduce(to.type, reduction, to.bytes, ValuesOf(std::span<const Element>(from)).bytes);
  return into;
}

TEST(ElementReduceTest, SumsEveryElementType) {
  EXPECT_THAT(Reduced<float>(Reduction::kSum, {1.5F, -2}, {2, 3}), ElementsAre(3.5F, 1));
  EXPECT_THAT(Reduced<double>(Reduction::kSum, {1e300}, {1e300}), ElementsAre(2e300));
  EXPECT_THAT(Reduced<int32_t>(Reduction::kSum, {-5}, {7}), ElementsAre(2));
  EXPECT_THAT(Reduced<int64_t>(Reduction::kSum, {int64_t{1} << 40}, {1}),
              ElementsAre((int64_t{1} << 40) + 1));
  EXPECT_THAT(Reduced<uint8_t>(Reduction::kSum, {200}, {100}), ElementsAre(44));
}

TEST(ElementReduceTest, SumsOfIntegersWrapAround) {
  constexpr int32_t kLargest = std::numeric_limits<int32_t>::max();

  EXPECT_THAT(Reduced<int32_t>(Reduction::kSum, {kLargest}, {1}),
              ElementsAre(std::numeric_limits<int32_t>::min()));
}

TEST(ElementReduceTest, ChoosesTheSmallerOrTheLarger) {
  EXPECT_THAT(Reduced<int64_t>(Reduction::kMin, {3, -1}, {2, 5}), ElementsAre(2, -1));
  EXPECT_THAT(Reduced<double>(Reduction::kMax, {3, -1}, {2, 5}), ElementsAre(3, 5));
}

TEST(ElementReduceTest, NanStaysFromEitherSide) {
  const float nan = std::nanf("");

  for (const Reduction reduction : {Reduction::kSum, Reduction::kMin, Reduction::kMax}) {
    const std::vector<float> reduced = Reduced<float>(reduction, {nan, 1}, {1, nan});
    EXPECT_TRUE(std::isnan(reduced[0]) && std::isnan(reduced[1]));
  }
}

TEST(ElementReduceTest, DividesFloatingPointValues) {
  std::vector<double> sums = {3, -1};
  std::vector<float> small = {1};

  DivideBy(ElementType::kFloat64, 2, ValuesOf(std::span(sums)).bytes);
  DivideBy(ElementType::kFloat32, 4, ValuesOf(std::span(small)).bytes);

  EXPECT_THAT(sums, ElementsAre(1.5, -0.5));
  EXPECT_THAT(small, ElementsAre(0.25F));
}

}  // namespace
}  // namespace pushpull
