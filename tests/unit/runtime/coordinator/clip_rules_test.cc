// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/clip_rules.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<TensorSpec> Clipped(double of_v, double of_w) {
  std::vector<TensorSpec> specs = {
      {.name = "bias", .dims = {3}}, {.name = "v", .dims = {3}}, {.name = "w", .dims = {3}}};
  specs[1].clip_norm = of_v;
  specs[2].clip_norm = of_w;
  return specs;
}

TEST(ClipRulesTest, ClippedAndOtherTensorsMayBeMixedInSync) {
  EXPECT_TRUE(CheckClipping(Clipped(0, 0), {}).ok());
  EXPECT_TRUE(CheckClipping(Clipped(0, 1.5), {}).ok());
  EXPECT_TRUE(CheckClipping(Clipped(1.5, 1.5), {}).ok());
}

TEST(ClipRulesTest, ANormThatIsNoLimitIsRefusedByItsTensor) {
  for (const double norm : {-1.0, double{INFINITY}, double{NAN}}) {
    const absl::Status status = CheckClipping(Clipped(0, norm), {});

    EXPECT_TRUE(absl::IsInvalidArgument(status)) << norm;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("tensor \"w\": clip_norm"), HasSubstr("finite")));
  }
}

TEST(ClipRulesTest, TwoNormsInOneJobAreRefused) {
  const absl::Status status = CheckClipping(Clipped(1, 2), {});

  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor \"w\": clip_norm 2, but tensor \"v\" has 1"));
}

TEST(ClipRulesTest, ModesWithoutEverybodysGradientAreRefused) {
  const std::pair<Consistency, std::string> cases[] = {
      {{.mode = SyncMode::kAsync}, "spec.sync.mode Sync, which is Async"},
      {{.mode = SyncMode::kBounded, .staleness = 2}, "spec.sync.mode Sync, which is Bounded"},
      {{.backup_workers = 1}, "spec.sync.backupWorkers 0, which is 1"},
      {{.gated = true}, "spec.sync.gated false"},
  };
  for (const auto& [consistency, text] : cases) {
    const absl::Status status = CheckClipping(Clipped(0, 1), consistency);

    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("tensor \"w\": clip_norm 1"), HasSubstr(text)));
    EXPECT_TRUE(CheckClipping(Clipped(0, 0), consistency).ok()) << text;
  }
}

}  // namespace
}  // namespace pushpull
