// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/element_reduce.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tensor/half_float.h"
#include "tests/unit/runtime/tensor/element_lists.h"

namespace pushpull {
namespace {

using testing::Each;
using testing::ElementsAre;

template <typename Element>
constexpr ElementKind KindOf() {
  if constexpr (std::is_same_v<Element, uint8_t>) return ElementKind::kUint8;
  if constexpr (std::is_same_v<Element, int8_t>) return ElementKind::kInt8;
  if constexpr (std::is_same_v<Element, int32_t>) return ElementKind::kInt32;
  if constexpr (std::is_same_v<Element, int64_t>) return ElementKind::kInt64;
  if constexpr (std::is_same_v<Element, float>) return ElementKind::kFloat32;
  return ElementKind::kFloat64;
}

template <typename Element>
std::vector<Element> Reduced(ElementOp op,
                             std::vector<Element> into,
                             const std::vector<Element>& from) {
  Reduce(KindOf<Element>(),
         op,
         std::as_writable_bytes(std::span(into)),
         std::as_bytes(std::span(from)));
  return into;
}

template <typename Element>
std::vector<Element> Finished(ElementOp op, size_t count, std::vector<Element> values) {
  FinishReduction(KindOf<Element>(), op, count, std::as_writable_bytes(std::span(values)));
  return values;
}

using Halves = std::vector<uint16_t>;  // float16 or bfloat16

Halves HalvesOf(ElementKind kind, const std::vector<float>& values) {
  const auto encode = kind == ElementKind::kFloat16 ? EncodeFloat16 : EncodeBFloat16;
  Halves halves(values.size());
  encode(values, std::as_writable_bytes(std::span(halves)));
  return halves;
}

std::vector<float> FloatsOf(ElementKind kind, const Halves& halves) {
  const auto decode = kind == ElementKind::kFloat16 ? DecodeFloat16 : DecodeBFloat16;
  std::vector<float> values(halves.size());
  decode(std::as_bytes(std::span(halves)), values);
  return values;
}

std::vector<float> ReducedHalves(ElementKind kind,
                                 ElementOp op,
                                 const std::vector<float>& into,
                                 const std::vector<float>& from) {
  Halves a = HalvesOf(kind, into);
  const Halves b = HalvesOf(kind, from);
  Reduce(kind, op, std::as_writable_bytes(std::span(a)), std::as_bytes(std::span(b)));
  return FloatsOf(kind, a);
}

// All of `arrays`, which are not empty.
std::vector<float> AllHalves(ElementKind kind,
                             ElementOp op,
                             const std::vector<std::vector<float>>& arrays) {
  std::vector<Halves> halves;
  std::vector<std::span<const std::byte>> others;
  for (const std::vector<float>& values : arrays) halves.push_back(HalvesOf(kind, values));
  for (const Halves& one : std::span(halves).subspan(1))
    others.push_back(std::as_bytes(std::span(one)));
  ReduceAll(kind, op, std::as_writable_bytes(std::span(halves[0])), others);
  return FloatsOf(kind, halves[0]);
}

TEST(ElementReduceTest, SumsEveryElementType) {
  EXPECT_THAT(Reduced<float>(ElementOp::kSum, {1.5F, -2}, {2, 3}), ElementsAre(3.5F, 1));
  EXPECT_THAT(Reduced<double>(ElementOp::kSum, {1e300}, {1e300}), ElementsAre(2e300));
  EXPECT_THAT(Reduced<int32_t>(ElementOp::kSum, {-5}, {7}), ElementsAre(2));
  EXPECT_THAT(Reduced<int64_t>(ElementOp::kSum, {int64_t{1} << 40}, {1}),
              ElementsAre((int64_t{1} << 40) + 1));
  EXPECT_THAT(Reduced<uint8_t>(ElementOp::kSum, {200}, {100}), ElementsAre(44));
  EXPECT_THAT(Reduced<int8_t>(ElementOp::kSum, {-100}, {-100}), ElementsAre(56));
}

TEST(ElementReduceTest, SumsAndProductsOfIntegersWrapAround) {
  constexpr int32_t kLargest = std::numeric_limits<int32_t>::max();
  constexpr int64_t kLongest = std::numeric_limits<int64_t>::max();

  EXPECT_THAT(Reduced<int32_t>(ElementOp::kSum, {kLargest}, {1}),
              ElementsAre(std::numeric_limits<int32_t>::min()));
  EXPECT_THAT(Reduced<int64_t>(ElementOp::kProduct, {kLongest}, {2}), ElementsAre(-2));
  EXPECT_THAT(Reduced<int8_t>(ElementOp::kProduct, {-128}, {-128}), ElementsAre(0));
}

TEST(ElementReduceTest, ChoosesTheSmallerOrTheLarger) {
  EXPECT_THAT(Reduced<int64_t>(ElementOp::kMin, {3, -1}, {2, 5}), ElementsAre(2, -1));
  EXPECT_THAT(Reduced<int8_t>(ElementOp::kMin, {3, -1}, {2, 5}), ElementsAre(2, -1));
  EXPECT_THAT(Reduced<double>(ElementOp::kMax, {3, -1}, {2, 5}), ElementsAre(3, 5));
  EXPECT_THAT(Reduced<float>(ElementOp::kMax, {3, -1}, {2, 5}), ElementsAre(3, 5));
}

TEST(ElementReduceTest, AndOrTakeWhatDiffersFromZeroAsTrue) {
  EXPECT_THAT(Reduced<int32_t>(ElementOp::kAnd, {0, 2, 4}, {3, 0, -1}), ElementsAre(0, 0, 1));
  EXPECT_THAT(Reduced<float>(ElementOp::kOr, {0, -0.5F, 0}, {0, 0, 7}), ElementsAre(0, 1, 1));
  EXPECT_THAT(ReducedHalves(ElementKind::kFloat16, ElementOp::kAnd, {1, 0}, {2, 2}),
              ElementsAre(1, 0));
}

TEST(ElementReduceTest, NanStaysFromEitherSide) {
  const float nan = std::nanf("");

  for (const ElementOp op : {ElementOp::kSum, ElementOp::kMin, ElementOp::kMax}) {
    const std::vector<float> reduced = Reduced<float>(op, {nan, 1}, {1, nan});
    EXPECT_TRUE(std::isnan(reduced[0]) && std::isnan(reduced[1]));
    const std::vector<float> halves = ReducedHalves(ElementKind::kBFloat16, op, {nan, 1}, {1, nan});
    EXPECT_TRUE(std::isnan(halves[0]) && std::isnan(halves[1]));
  }
}

TEST(ElementReduceTest, HalvesAreRoundedOnceAndLongArraysWhole) {
  const std::vector<float> ones(1500, 1.0F);
  const std::vector<float> thirds(1500, 0.333251953125F);  // as float16 has it

  // The nearest to 1.333251953125.
  EXPECT_THAT(ReducedHalves(ElementKind::kFloat16, ElementOp::kSum, ones, thirds),
              Each(1.3330078125F));
  EXPECT_THAT(ReducedHalves(ElementKind::kBFloat16, ElementOp::kProduct, {3}, {-0.5F}),
              ElementsAre(-1.5F));
}

TEST(ElementReduceTest, HalvesOfManyArraysAreRoundedOnceAtTheEnd) {
  // Each 1 alone is half of what the sum's last bit stands for, and would be rounded away.
  EXPECT_THAT(AllHalves(ElementKind::kFloat16, ElementOp::kSum, {{2048}, {1}, {1}}),
              ElementsAre(2050));
  EXPECT_THAT(AllHalves(ElementKind::kBFloat16, ElementOp::kSum, {{256}, {1}, {1}}),
              ElementsAre(258));
  // More than one block of them.
  const std::vector<float> large(1500, 2048);
  const std::vector<float> ones(1500, 1);
  EXPECT_THAT(AllHalves(ElementKind::kFloat16, ElementOp::kSum, {large, ones, ones}),
              testing::AllOf(testing::SizeIs(1500), Each(2050)));
}

TEST(ElementReduceTest, OnlyTheResultOfFloat16CanOverflow) {
  const std::vector<std::vector<float>> arrays = {{60'000}, {60'000}, {-60'000}};

  EXPECT_THAT(AllHalves(ElementKind::kFloat16, ElementOp::kSum, arrays), ElementsAre(60'000));
  EXPECT_THAT(AllHalves(ElementKind::kFloat16, ElementOp::kMean, arrays), ElementsAre(20'000));
  EXPECT_THAT(AllHalves(ElementKind::kFloat16, ElementOp::kSum, {{60'000}, {60'000}}),
              ElementsAre(std::numeric_limits<float>::infinity()));
}

TEST(ElementReduceTest, SeveralArraysAreReducedAndFinished) {
  std::vector<int32_t> a = {1, -9};
  const std::vector<int32_t> b = {2, 3};
  const std::vector<int32_t> c = {6, -3};
  const std::span<const std::byte> others[] = {std::as_bytes(std::span(b)),
                                               std::as_bytes(std::span(c))};

  ReduceAll(ElementKind::kInt32, ElementOp::kMean, std::as_writable_bytes(std::span(a)), others);

  EXPECT_THAT(a, ElementsAre(3, -3));
  EXPECT_THAT(AllHalves(ElementKind::kBFloat16, ElementOp::kMin, {{1.5F, 7}, {3, -2}, {2, 0}}),
              ElementsAre(1.5F, -2));
  EXPECT_THAT(AllHalves(ElementKind::kFloat16, ElementOp::kOr, {{0, -3}}), ElementsAre(0, 1));
}

TEST(ElementReduceTest, MeansAreDividedAtTheEnd) {
  EXPECT_THAT(Finished<double>(ElementOp::kMean, 2, {3, -1}), ElementsAre(1.5, -0.5));
  EXPECT_THAT(Finished<float>(ElementOp::kMean, 4, {1}), ElementsAre(0.25F));
  EXPECT_THAT(Finished<int32_t>(ElementOp::kMean, 2, {3, -3}), ElementsAre(1, -1));
  EXPECT_THAT(Finished<int8_t>(ElementOp::kMean, 200, {100, -128}), ElementsAre(0, 0));
  EXPECT_THAT(Finished<int32_t>(ElementOp::kSum, 2, {3}), ElementsAre(3));
}

TEST(ElementReduceTest, ASingleArrayBecomesZerosAndOnes) {
  EXPECT_THAT(Finished<int64_t>(ElementOp::kAnd, 1, {0, -7}), ElementsAre(0, 1));
  EXPECT_THAT(Finished<double>(ElementOp::kOr, 1, {0, 0.5}), ElementsAre(0, 1));
}

TEST(ElementReduceTest, TheIdentityChangesNothing) {
  for (const ElementKind kind : kElementKinds) {
    for (const ElementOp op : kElementOps) {
      SCOPED_TRACE(ToString(kind) + " " + ToString(op));
      std::vector<std::byte> ones(3 * ElementBytes(kind));
      std::vector<std::byte> reduced(ones.size());
      FillIdentity(kind, ElementOp::kProduct, ones);

      FillIdentity(kind, op, reduced);
      Reduce(kind, op, reduced, ones);

      EXPECT_EQ(reduced, ones);
    }
  }
}

}  // namespace
}  // namespace pushpull
