// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/requeue.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using When = Requeue::When;
using Trouble = Requeue::Trouble;
using std::chrono::seconds;

TEST(RequeueTest, AReconciledJobIsRequeuedWhenItsPlanSays) {
  EXPECT_EQ(DecideRequeue(std::optional<seconds>()), Requeue{.when = When::kOnChange});
  EXPECT_EQ(DecideRequeue(std::optional<seconds>(30)),
            (Requeue{.when = When::kAfterDelay, .delay = seconds(30)}));
}

TEST(RequeueTest, AConflictIsNoError) {
  EXPECT_EQ(DecideRequeue(absl::AbortedError("the object has been modified")),
            (Requeue{.when = When::kAfterFailure, .trouble = Trouble::kConflict}));
}

TEST(RequeueTest, EveryOtherFailureIsRetriedAndReported) {
  for (const absl::StatusCode code : {absl::StatusCode::kUnavailable,
                                      absl::StatusCode::kDeadlineExceeded,
                                      absl::StatusCode::kInvalidArgument,
                                      absl::StatusCode::kPermissionDenied,
                                      absl::StatusCode::kAlreadyExists,
                                      absl::StatusCode::kFailedPrecondition,
                                      absl::StatusCode::kInternal}) {
    EXPECT_EQ(DecideRequeue(absl::Status(code, "why")),
              (Requeue{.when = When::kAfterFailure, .trouble = Trouble::kError}));
  }
}

TEST(RequeueTest, AUsersMistakeIsRetriedAndNoErrorOfTheOperators) {
  EXPECT_EQ(DecideRequeue(AsUsersMistake(absl::NotFoundError("there is no Secret mine"))),
            (Requeue{.when = When::kAfterFailure, .trouble = Trouble::kUsersMistake}));
}

TEST(RequeueTest, AnOperatorThatStopsReportsNothing) {
  EXPECT_EQ(DecideRequeue(absl::CancelledError("stopped")), Requeue{});
}

}  // namespace
}  // namespace pushpull_operator
