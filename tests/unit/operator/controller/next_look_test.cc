// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/next_look.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using When = NextLook::When;
using Trouble = NextLook::Trouble;
using std::chrono::seconds;

TEST(NextLookTest, AJobThatIsWellIsLookedAtWhenItsPlanSaysSo) {
  EXPECT_EQ(DecideNextLook(std::optional<seconds>()), NextLook{.when = When::kOnChange});
  EXPECT_EQ(DecideNextLook(std::optional<seconds>(30)),
            (NextLook{.when = When::kAfterDelay, .delay = seconds(30)}));
}

TEST(NextLookTest, AConflictIsNoError) {
  EXPECT_EQ(DecideNextLook(absl::AbortedError("the object has been modified")),
            (NextLook{.when = When::kAfterFailure, .trouble = Trouble::kConflict}));
}

TEST(NextLookTest, EveryOtherFailureIsTriedAgainAndTold) {
  for (const absl::StatusCode code : {absl::StatusCode::kUnavailable,
                                      absl::StatusCode::kDeadlineExceeded,
                                      absl::StatusCode::kInvalidArgument,
                                      absl::StatusCode::kPermissionDenied,
                                      absl::StatusCode::kAlreadyExists,
                                      absl::StatusCode::kFailedPrecondition,
                                      absl::StatusCode::kInternal}) {
    EXPECT_EQ(DecideNextLook(absl::Status(code, "why")),
              (NextLook{.when = When::kAfterFailure, .trouble = Trouble::kError}));
  }
}

TEST(NextLookTest, AnOperatorThatStopsTellsNothing) {
  EXPECT_EQ(DecideNextLook(absl::CancelledError("stopped")), NextLook{});
}

}  // namespace
}  // namespace pushpull_operator
