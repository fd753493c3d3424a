// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/departure.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(DepartureTest, WorkerThatMayStayIsNotEarly) {
  const Departure departure;

  EXPECT_FALSE(departure.must_leave());
  EXPECT_FALSE(departure.IsEarly(true));
}

TEST(DepartureTest, SamplesTellWhetherAWorkerIsDone) {
  Departure departure;
  departure.SetReleased(true);
  departure.SetKnown();

  EXPECT_TRUE(departure.IsEarly(true));
  EXPECT_FALSE(departure.IsEarly(false));
}

TEST(DepartureTest, ProgramThatDoesNotKnowIsDone) {
  Departure departure;
  departure.RequestEnd();

  EXPECT_FALSE(departure.IsEarly(true));
  EXPECT_FALSE(departure.IsEarly(std::nullopt));
}

TEST(DepartureTest, EarlyEndOfTheProcessAsksForAnother) {
  Departure departure;
  EXPECT_TRUE(departure.RequestEnd());
  EXPECT_FALSE(departure.RequestEnd());

  departure.OnLeave(true);

  EXPECT_EQ(departure.exit_code(), 143);
}

TEST(DepartureTest, ReleasedWorkerIsNotReplaced) {
  Departure departure;
  departure.RequestEnd();
  departure.SetReleased(true);

  departure.OnLeave(true);

  EXPECT_EQ(departure.exit_code(), 0);
}

}  // namespace
}  // namespace pushpull
