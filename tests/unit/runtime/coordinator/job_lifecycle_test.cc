// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/job_lifecycle.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

using std::chrono::seconds;

class JobLifecycleTest : public testing::Test {
 protected:
  JobStatus Status() const {
    JobStatus status;
    lifecycle_.AddTo(status, now_);
    return status;
  }

  SteadyTime now_{};
  JobLifecycle lifecycle_{"j", seconds(1)};
};

TEST_F(JobLifecycleTest, TimeCountsFromTheFirstStepToTheEnd) {
  EXPECT_FALSE(lifecycle_.CheckRunning().ok());
  lifecycle_.Start(now_);
  EXPECT_TRUE(lifecycle_.CheckRunning().ok());
  now_ += seconds(5);
  lifecycle_.Succeed(now_);
  now_ += seconds(5);

  EXPECT_EQ(Status().phase, JobPhase::kSucceeded);
  EXPECT_EQ(Status().seconds, 5.0);
  EXPECT_FALSE(lifecycle_.CheckRunning().ok());
}

TEST_F(JobLifecycleTest, AFailureWaitsForOneDetail) {
  lifecycle_.Start(now_);
  lifecycle_.Fail(now_, {.text = "server-0 is lost", .is_final = false});
  EXPECT_TRUE(lifecycle_.has_failed());
  EXPECT_EQ(Status().phase, JobPhase::kRunning);

  EXPECT_TRUE(lifecycle_.AddDetail("worker-0: step 3"));

  EXPECT_EQ(Status().phase, JobPhase::kFailed);
  EXPECT_EQ(Status().failure, "server-0 is lost; worker-0: step 3");
  EXPECT_FALSE(lifecycle_.AddDetail("worker-1: step 3"));
}

TEST_F(JobLifecycleTest, WithoutADetailTheGraceEndsTheWait) {
  lifecycle_.Fail(now_, {.text = "server-0 is lost", .is_final = false});
  lifecycle_.OnTick(now_);
  EXPECT_NE(Status().phase, JobPhase::kFailed);

  lifecycle_.OnTick(now_ + seconds(1));

  EXPECT_EQ(Status().phase, JobPhase::kFailed);
}

TEST_F(JobLifecycleTest, TheFirstFailureIsTheCause) {
  lifecycle_.Fail(now_, {.text = "first", .exit_code = 2});
  lifecycle_.Fail(now_, {.text = "second"});

  EXPECT_EQ(Status().failure, "first");
  EXPECT_EQ(Status().failure_exit_code, 2U);
}

TEST_F(JobLifecycleTest, ARunningJobHasNoUseForDetails) {
  lifecycle_.Start(now_);

  EXPECT_FALSE(lifecycle_.AddDetail("worker-0: pull of step 6"));

  EXPECT_TRUE(lifecycle_.is_running());
  EXPECT_EQ(lifecycle_.failure(), "");
}

}  // namespace
}  // namespace pushpull
