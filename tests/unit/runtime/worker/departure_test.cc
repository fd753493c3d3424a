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

TEST(DepartureTest, AnEarlyLeaveIsThatOfAReleasedOrReplacedWorker) {
  Departure done;
  done.SetReleased(true);
  done.OnLeave(false);
  EXPECT_FALSE(done.was_released());

  Departure released;
  released.SetReleased(true);
  released.OnLeave(true);
  EXPECT_TRUE(released.was_released());
  EXPECT_EQ(released.exit_code(), 0);

  Departure replaced;
  replaced.RequestEnd();
  replaced.OnLeave(true);
  EXPECT_FALSE(replaced.was_released());
  EXPECT_EQ(replaced.exit_code(), 143);
}

// It has returned its samples by then, and others have them.
TEST(DepartureTest, AWorkerThatIsKeptTooLateWasReleased) {
  Departure departure;
  departure.SetReleased(true);
  departure.SetReleased(false);

  departure.OnLeave(true);

  EXPECT_TRUE(departure.was_released());
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
