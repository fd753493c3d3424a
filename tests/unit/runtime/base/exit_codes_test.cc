// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/exit_codes.h"

#include "absl/status/status.h"
#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(ReportTest, NamesOfOthersReachNoTerminal) {
  testing::internal::CaptureStderr();
  const int code = Report(absl::NotFoundError("2 problems:\ntensor \x1b[2J: not there"), "program");

  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "program: 2 problems:\ntensor \\x1b[2J: not there\n");
  EXPECT_EQ(code, kExitNotReachable);
}

TEST(ReportTest, SuccessPrintsNothing) {
  testing::internal::CaptureStderr();

  EXPECT_EQ(Report(absl::OkStatus()), kExitDone);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace pushpull
