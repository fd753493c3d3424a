// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/server_clock.h"

#include <gtest/gtest.h>

#include "tests/fakes/fake_pausing_time.h"

namespace pushpull_operator {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::sys_seconds;

const sys_seconds kDate(seconds(784'111'777));

TEST(ServerClockTest, HttpDatesAreParsed) {
  EXPECT_EQ(ParseHttpDate("Sun, 06 Nov 1994 08:49:37 GMT"), kDate);
  EXPECT_EQ(ParseHttpDate(""), std::nullopt);
  EXPECT_EQ(ParseHttpDate("1994-11-06T08:49:37Z"), std::nullopt);
  EXPECT_EQ(ParseHttpDate("Sun, 06 Nov 1994 08:49:37 CET"), std::nullopt);
}

TEST(ServerClockTest, TheLocalClockCountsUntilTheFirstAnswer) {
  FakePausingTime time;
  ServerClock clock(time, kDate - hours(2));
  EXPECT_EQ(clock.Now(), kDate - hours(2));

  clock.Observe(kDate);

  EXPECT_EQ(clock.Now(), kDate);
  time.Advance(seconds(7));
  EXPECT_EQ(clock.Now(), kDate + seconds(7));
}

TEST(ServerClockTest, ItMayBeAheadOrBehindTheLocalClock) {
  FakePausingTime time;
  ServerClock clock(time, kDate + hours(2));

  clock.Observe(kDate);

  EXPECT_EQ(clock.Now(), kDate);
}

TEST(ServerClockTest, SlowAnswersDoNotTurnItBack) {
  FakePausingTime time;
  ServerClock clock(time);
  clock.Observe(kDate);
  time.Advance(milliseconds(2900));

  clock.Observe(kDate);  // an answer that was long under way

  EXPECT_EQ(clock.Now(), kDate + seconds(2));
}

TEST(ServerClockTest, ANewServerClockIsAdopted) {
  FakePausingTime time;
  ServerClock clock(time);
  clock.Observe(kDate);

  clock.Observe(kDate - seconds(60));

  EXPECT_EQ(clock.Now(), kDate - seconds(60));
}

}  // namespace
}  // namespace pushpull_operator
