// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/nccl/nccl_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::HasSubstr;

TEST(NcclApiTest, WithoutTheLibraryTheErrorSaysWhatToDo) {
  const auto nccl = LoadNcclApi("libnccl.so.of.no.machine");

  EXPECT_EQ(nccl.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(nccl.status().ToString(), HasSubstr("libnccl.so.of.no.machine"));
  EXPECT_THAT(nccl.status().ToString(), HasSubstr("install it"));
}

TEST(NcclApiTest, AnotherLibraryIsNoNccl) {
  const auto nccl = LoadNcclApi("libc.so.6");

  EXPECT_EQ(nccl.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(nccl.status().ToString(), HasSubstr("libc.so.6 has no ncclGetVersion"));
}

TEST(NcclApiTest, VersionsAreWrittenAsNcclDoes) {
  EXPECT_EQ(NcclVersionText(23203), "2.32.3");
  EXPECT_EQ(NcclVersionText(21400), "2.14.0");
}

TEST(NcclApiTest, TheConfigurationIsThatOfTheOldestVersion) {
  EXPECT_EQ(sizeof(NcclConfig), 24U);
  EXPECT_EQ(NcclConfig().version, 21400U);
}

}  // namespace
}  // namespace pushpull
