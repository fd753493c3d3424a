// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/codec_rules.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/optim/optimizer.h"
#include "runtime/tensor/codec.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<TensorSpec> Tensors(Codec codec, Reduction reduction = Reduction::kMean) {
  std::vector<TensorSpec> specs = {{.name = "bias", .dims = {3}}, {.name = "w", .dims = {3}}};
  specs[1].codec = codec;
  specs[1].reduction = reduction;
  return specs;
}

struct Case {
  std::string text;
  CodecRules rules;
  Reduction reduction = Reduction::kMean;
};

TEST(CodecRulesTest, CodecsWithMemoryAreRejectedWhereItWouldBeLost) {
  const Case cases[] = {
      {"spec.sync.mode Sync, which is Async", {{.mode = SyncMode::kAsync}}},
      {"spec.sync.mode Sync, which is Bounded", {{.mode = SyncMode::kBounded, .staleness = 2}}},
      {"spec.sync.backupWorkers 0, which is 1", {{.backup_workers = 1}}},
      {"spec.sync.gated", {{.gated = true}}},
      {"spec.sync.deterministic and spec.checkpoint",
       {.consistency = {}, .is_deterministic = true, .has_checkpoints = true}},
      {"reduction mean or sum, which is max", {}, Reduction::kMax},
      {"reduction mean or sum, which is min", {}, Reduction::kMin},
  };
  for (const Case& refused : cases) {
    for (const Codec codec : {Codec::kTopK, Codec::kOneBit}) {
      const absl::Status status = CheckCodecs(Tensors(codec, refused.reduction), refused.rules);
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << refused.text;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("tensor \"w\": codec " + ToString(codec)),
                        HasSubstr(refused.text),
                        HasSubstr("use fp16, bf16 or int8")));
    }
    for (const Codec codec : {Codec::kNone, Codec::kFloat16, Codec::kBFloat16, Codec::kInt8})
      EXPECT_TRUE(CheckCodecs(Tensors(codec, refused.reduction), refused.rules).ok());
  }
}

TEST(CodecRulesTest, ElsewhereItIsNot) {
  for (const Codec codec : {Codec::kTopK, Codec::kOneBit}) {
    EXPECT_TRUE(CheckCodecs(Tensors(codec), {}).ok());
    EXPECT_TRUE(CheckCodecs(Tensors(codec, Reduction::kSum), {}).ok());
    EXPECT_TRUE(CheckCodecs(Tensors(codec), {.consistency = {}, .is_deterministic = true}).ok());
    EXPECT_TRUE(CheckCodecs(Tensors(codec), {.consistency = {}, .has_checkpoints = true}).ok());
  }
}

}  // namespace
}  // namespace pushpull
