// SPDX-License-Identifier: Apache-2.0
#include "operator/cache/reflection.h"

#include <gtest/gtest.h>

#include "operator/kube/api_error.h"

namespace pushpull_operator {
namespace {

using pushpull::Duration;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Step = Reflection::Step;

constexpr pushpull::SteadyTime kNow{seconds(100)};

Reflection Watching() {
  Reflection reflection;
  reflection.Listed("7");
  return reflection;
}

TEST(ReflectionTest, AListingIsFollowedByAWatchFromItsVersion) {
  Reflection reflection;
  ASSERT_EQ(reflection.step(), Step::kList);

  EXPECT_EQ(reflection.Listed("7"), Duration::zero());

  EXPECT_EQ(reflection.step(), Step::kWatch);
  EXPECT_EQ(reflection.version(), "7");
}

TEST(ReflectionTest, OnlyATooOldVersionAndABrokenStreamCauseAListing) {
  const std::vector<std::pair<absl::Status, Step>> table = {
      {absl::OkStatus(), Step::kWatch},
      {absl::UnavailableError("gone"), Step::kWatch},
      {absl::DeadlineExceededError("slow"), Step::kWatch},
      {ToStatus({.code = 429}, "watch"), Step::kWatch},
      {ToStatus({.code = 500}, "watch"), Step::kWatch},
      {ToStatus({.code = 403}, "watch"), Step::kWatch},
      {ToStatus({.code = 410}, "watch"), Step::kList},
      {absl::DataLossError("no JSON"), Step::kList},
      {absl::ResourceExhaustedError("frame too long"), Step::kList},
  };

  for (const auto& [status, step] : table) {
    Reflection reflection = Watching();
    reflection.WatchEnded(status, 0, kNow);
    EXPECT_EQ(reflection.step(), step) << status;
  }
}

TEST(ReflectionTest, EventsAndBookmarksMoveTheVersion) {
  Reflection reflection = Watching();

  reflection.Progressed("9");
  reflection.WatchEnded(absl::UnavailableError("gone"), 0, kNow);

  EXPECT_EQ(reflection.version(), "9");
}

TEST(ReflectionTest, AnEndInOrderAfterEventsGoesOnAtOnce) {
  Reflection reflection = Watching();
  reflection.Progressed("9");

  EXPECT_EQ(reflection.WatchEnded(absl::OkStatus(), 0, kNow), Duration::zero());
  // A server that only ends watches is not asked in a hot loop.
  EXPECT_EQ(reflection.WatchEnded(absl::OkStatus(), 0, kNow), milliseconds(400));
  EXPECT_EQ(reflection.WatchEnded(absl::OkStatus(), 0, kNow), milliseconds(800));
}

TEST(ReflectionTest, VersionsThatAreAlwaysTooOldAreNotListedInAHotLoop) {
  Reflection reflection = Watching();
  Duration pause = Duration::zero();

  for (int i = 0; i < 20; ++i) {
    pause = reflection.WatchEnded(absl::OutOfRangeError("old"), 0, kNow);
    reflection.Listed("7");
  }

  EXPECT_EQ(pause, seconds(30));
}

TEST(ReflectionTest, ARetryAfterIsKept) {
  Reflection reflection;

  EXPECT_EQ(
      reflection.ListFailed(ToStatus({.code = 429, .retry_after = seconds(9)}, "list"), 0.5, kNow),
      seconds(9));
}

}  // namespace
}  // namespace pushpull_operator
