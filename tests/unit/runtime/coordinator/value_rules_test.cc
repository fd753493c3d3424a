// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/value_rules.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tensor/reduction.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TensorSpec Named(const std::string& name) {
  return {.name = name, .dims = {4}};
}

absl::Status Check(const TensorSpec& tensor, const Consistency& consistency = {}) {
  return CheckValueTypes(std::vector<TensorSpec>{Named("first"), tensor}, consistency);
}

TEST(ValueRulesTest, HalvesGoWithEverythingButACodec) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    TensorSpec half = Named("half");
    half.dtype = dtype;
    half.clip_norm = 1;
    half.optimizer = {.kind = OptimizerKind::kAdam, .learning_rate = 1};
    EXPECT_TRUE(Check(half, {.mode = SyncMode::kAsync}).ok());

    half.codec = Codec::kInt8;
    const absl::Status refused = Check(half);
    EXPECT_TRUE(absl::IsInvalidArgument(refused));
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("tensor \"half\""), HasSubstr("takes no codec, which is int8")));
  }
}

TEST(ValueRulesTest, ProductsAndLogicalReductionsAreOfPlainValues) {
  for (const Reduction reduction : {Reduction::kProd, Reduction::kAnd, Reduction::kOr}) {
    TensorSpec plain = Named("w");
    plain.reduction = reduction;
    EXPECT_TRUE(Check(plain).ok());
    EXPECT_TRUE(Check(plain, {.gated = true}).ok());

    TensorSpec optimized = plain;
    optimized.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1};
    TensorSpec encoded = plain;
    encoded.codec = Codec::kFloat16;
    TensorSpec clipped = plain;
    clipped.clip_norm = 1;
    const auto text = [&](const TensorSpec& tensor, const Consistency& consistency = {}) {
      return std::string(Check(tensor, consistency).message());
    };
    const std::string name = "tensor \"w\": reduction " + ToString(reduction);
    EXPECT_THAT(text(optimized), AllOf(HasSubstr(name), HasSubstr("needs the optimizer Sum")));
    EXPECT_THAT(text(encoded), AllOf(HasSubstr(name), HasSubstr("codec none, which is fp16")));
    EXPECT_THAT(text(clipped), AllOf(HasSubstr(name), HasSubstr("clip_norm 0, which is 1")));
    EXPECT_THAT(text(plain, {.mode = SyncMode::kBounded, .staleness = 1}),
                AllOf(HasSubstr(name), HasSubstr("mode Sync, which is Bounded")));
  }
}

TEST(ValueRulesTest, MinimumAndMaximumGoWithAnOptimizer) {
  TensorSpec smallest = Named("w");
  smallest.reduction = Reduction::kMin;
  smallest.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1};
  EXPECT_TRUE(Check(smallest, {.mode = SyncMode::kAsync}).ok());
}

}  // namespace
}  // namespace pushpull
