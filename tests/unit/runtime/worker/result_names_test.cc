// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/result_names.h"

#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(ResultNamesTest, ALongNameIsRefusedWithItsLength) {
  ResultNames names;

  EXPECT_TRUE(names.Add(std::string(300, 'x')).ok());
  const absl::Status refused = names.Add(std::string(301, 'x'));

  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(testing::HasSubstr("301 bytes, at most 300"),
                             testing::SizeIs(testing::Lt(200))));
}

TEST(ResultNamesTest, ANameTooManyIsRefusedAndKnownOnesAreNot) {
  ResultNames names;
  for (int i = 0; i < 1024; ++i) EXPECT_TRUE(names.Add(absl::StrCat("loss/", i)).ok()) << i;

  EXPECT_TRUE(absl::IsInvalidArgument(names.Add("accuracy")));
  EXPECT_TRUE(names.Add("loss/7").ok());
}

}  // namespace
}  // namespace pushpull
