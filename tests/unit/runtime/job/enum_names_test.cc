// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/enum_names.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(EnumNamesTest, EveryValueHasItsName) {
  EXPECT_EQ(NameOf(SyncMode::kBounded), "Bounded");
  EXPECT_EQ(NameOf(NonFinitePolicy::kSkip), "Skip");
  EXPECT_EQ(NameOf(ExitReason::kOomKilled), "OOMKilled");
  EXPECT_EQ(NameOf(JobRole::kCoordinator), "Coordinator");
}

}  // namespace
}  // namespace pushpull
