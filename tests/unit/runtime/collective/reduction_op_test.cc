// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/reduction_op.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using Bytes = std::vector<std::byte>;

void KeepSmaller(std::span<std::byte> into, std::span<const std::byte> from) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::min(into[i], from[i]);
}

TEST(ReductionOpTest, BuiltInOperationsHaveNamesAndFingerprints) {
  const ReductionOp sum(ElementKind::kFloat32, ElementOp::kSum);
  const ReductionOp mean(ElementKind::kFloat32, ElementOp::kMean);

  EXPECT_EQ(sum.name(), "float32 sum");
  EXPECT_EQ(sum.element_bytes(), 4U);
  EXPECT_NE(sum.fingerprint(), mean.fingerprint());
  EXPECT_TRUE(mean.NeedsFinish(2));
  EXPECT_FALSE(sum.NeedsFinish(2));
}

TEST(ReductionOpTest, AnOperationOfTheProgramReduces) {
  const absl::StatusOr<ReductionOp> op =
      ReductionOp::Custom("smallest byte", Bytes{std::byte{255}}, KeepSmaller);
  ASSERT_TRUE(op.ok()) << op.status();
  Bytes values = {std::byte{3}, std::byte{9}};

  op->Reduce(values, Bytes{std::byte{5}, std::byte{4}});

  EXPECT_THAT(values, testing::ElementsAre(std::byte{3}, std::byte{4}));
  op->FillIdentity(values);
  EXPECT_THAT(values, testing::Each(std::byte{255}));
  EXPECT_FALSE(op->NeedsFinish(2));
}

TEST(ReductionOpTest, AnIdentityThatChangesItselfIsRefused) {
  const auto add = [](std::span<std::byte> into, std::span<const std::byte> from) {
    for (size_t i = 0; i < into.size(); ++i)
      into[i] = static_cast<std::byte>(static_cast<int>(into[i]) + static_cast<int>(from[i]));
  };

  EXPECT_EQ(ReductionOp::Custom("add", Bytes{std::byte{1}}, add).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReductionOp::Custom("add", Bytes{}, add).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReductionOp::Custom("add", Bytes(kCustomElementBytesMax + 1), add).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ReductionOp::Custom("add", Bytes{std::byte{0}}, add).ok());
}

}  // namespace
}  // namespace pushpull
