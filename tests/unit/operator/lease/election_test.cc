// SPDX-License-Identifier: Apache-2.0
#include "operator/lease/election.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Step = Election::Step;

constexpr pushpull::SteadyTime kNow{seconds(1000)};

LeaseRecord HeldBy(const std::string& holder, const std::string& renewed) {
  return {.holder = holder, .duration = seconds(15), .renew_time = renewed, .transitions = 4};
}

// An election that leads since kNow.
Election Leading() {
  Election election("me", {});
  election.Observe(std::nullopt, kNow);
  election.OnWritten(election.RecordToWrite("t"), kNow, kNow);
  return election;
}

TEST(ElectionTest, AMissingLeaseIsCreated) {
  Election election("me", {});
  election.Observe(std::nullopt, kNow);

  EXPECT_EQ(election.Next(kNow), Step::kCreate);
  EXPECT_FALSE(election.IsLeader(kNow));
}

// Its leader may not know it yet; and an uninstalled operator must not leave another one behind.
TEST(ElectionTest, ADeletedLeaseIsCreatedWhenItWouldHaveExpired) {
  Election standby("me", {});
  standby.Observe(HeldBy("other", "1"), kNow);
  Election robbed("me", {}, /*was_seen=*/true);
  EXPECT_EQ(robbed.Next(kNow), Step::kCreate) << "nothing was read yet";
  for (Election* election : {&standby, &robbed}) {
    election->Observe(std::nullopt, kNow + seconds(5));
    election->Observe(std::nullopt, kNow + seconds(7));

    EXPECT_EQ(election->Next(kNow + milliseconds(19'999)), Step::kWait);
    EXPECT_EQ(election->Next(kNow + seconds(20)), Step::kCreate);
  }
}

TEST(ElectionTest, ALeaseRunsFromTheObservedRenewal) {
  Election election("me", {});
  election.Observe(HeldBy("other", "1"), kNow);
  election.Observe(HeldBy("other", "2"), kNow + seconds(10));
  election.Observe(HeldBy("other", "2"), kNow + seconds(20));

  EXPECT_EQ(election.Next(kNow + seconds(24)), Step::kWait);
  EXPECT_EQ(election.Next(kNow + seconds(25)), Step::kAcquire);
}

TEST(ElectionTest, WallClocksInTheLeaseAreIgnored) {
  for (const char* time : {"1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z", "junk"}) {
    Election election("me", {});
    election.Observe(HeldBy("other", time), kNow);

    EXPECT_EQ(election.Next(kNow + milliseconds(14'999)), Step::kWait) << time;
    EXPECT_EQ(election.Next(kNow + seconds(15)), Step::kAcquire) << time;
  }
}

TEST(ElectionTest, AReleasedLeaseIsAcquiredAtOnce) {
  Election election("me", {});
  election.Observe(HeldBy("", "1"), kNow);

  EXPECT_EQ(election.Next(kNow), Step::kAcquire);
  EXPECT_EQ(election.RecordToWrite("t").transitions, 5);
}

TEST(ElectionTest, AWriteWithALostAnswerIsRepeated) {
  Election election("me", {});
  election.Observe(HeldBy("me", "1"), kNow);

  EXPECT_EQ(election.Next(kNow), Step::kAcquire);
  EXPECT_EQ(election.RecordToWrite("t").transitions, 4);
}

TEST(ElectionTest, LeadershipRunsFromBeforeTheRenewalIsSent) {
  Election election("me", {});
  election.Observe(std::nullopt, kNow);

  election.OnWritten(election.RecordToWrite("t"), kNow, kNow + seconds(4));

  EXPECT_EQ(election.Next(kNow + seconds(4)), Step::kRenew);
  EXPECT_TRUE(election.IsLeader(kNow + milliseconds(9'999)));
  EXPECT_FALSE(election.IsLeader(kNow + seconds(10)));
  EXPECT_EQ(election.Next(kNow + seconds(10)), Step::kLost);
}

TEST(ElectionTest, RenewalsKeepTheAcquireTime) {
  Election election = Leading();
  const LeaseRecord renewed = election.RecordToWrite("later");

  EXPECT_EQ(renewed.acquire_time, "t");
  EXPECT_EQ(renewed.renew_time, "later");
  election.OnWritten(renewed, kNow + seconds(8), kNow + seconds(8));
  EXPECT_TRUE(election.IsLeader(kNow + seconds(17)));
}

TEST(ElectionTest, ALostLeaseStaysLost) {
  Election late = Leading();
  late.OnWritten(
      late.RecordToWrite("x"), kNow + seconds(9), kNow + seconds(40));  // paused in between
  EXPECT_EQ(late.Next(kNow + seconds(40)), Step::kLost);
  EXPECT_FALSE(late.IsLeader(kNow + seconds(12)));

  Election robbed = Leading();
  robbed.Observe(HeldBy("other", "1"), kNow + seconds(1));
  EXPECT_EQ(robbed.Next(kNow + seconds(1)), Step::kLost);

  Election without = Leading();
  without.Observe(std::nullopt, kNow + seconds(1));
  EXPECT_EQ(without.Next(kNow + seconds(1)), Step::kLost);
}

TEST(ElectionTest, ALeaderStopsBeforeAnyCandidateBegins) {
  // The candidate sees each renewal at once, which is the earliest that it can begin.
  Election leader = Leading();
  Election candidate("you", {});
  candidate.Observe(leader.RecordToWrite("t"), kNow);

  for (pushpull::SteadyTime now = kNow; now < kNow + seconds(60); now += milliseconds(100)) {
    EXPECT_FALSE(leader.IsLeader(now) && candidate.Next(now) == Step::kAcquire);
  }
  EXPECT_EQ(candidate.Next(kNow + seconds(15)), Step::kAcquire);
}

TEST(ElectionTest, ACandidateChecksWhenTheLeaseExpires) {
  Election election("me", {});
  election.Observe(HeldBy("other", "1"), kNow);

  EXPECT_EQ(election.NextCheck(kNow), kNow + seconds(2));
  EXPECT_EQ(election.NextCheck(kNow + seconds(14)), kNow + seconds(15));
  EXPECT_EQ(election.NextCheck(kNow + seconds(16)), kNow + seconds(18));  // the take has failed
}

TEST(ElectionTest, InconsistentTimesAreRejected) {
  EXPECT_TRUE(Validate({}).ok());
  EXPECT_FALSE(Validate({.retry_period = seconds(0)}).ok());
  EXPECT_FALSE(Validate({.renew_deadline = seconds(3)}).ok());
  EXPECT_FALSE(Validate({.lease_duration = seconds(12)}).ok());
}

}  // namespace
}  // namespace pushpull_operator
