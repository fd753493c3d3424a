// SPDX-License-Identifier: Apache-2.0
#include "operator/cache/reflector_state.h"

#include <gtest/gtest.h>

#include "operator/kube/api_error.h"

namespace pushpull_operator {
namespace {

using pushpull::Duration;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Step = ReflectorState::Step;

constexpr pushpull::SteadyTime kNow{seconds(100)};

ReflectorState Watching() {
  ReflectorState state;
  state.OnListed("7");
  return state;
}

TEST(ReflectorStateTest, AListIsFollowedByAWatchFromItsVersion) {
  ReflectorState state;
  ASSERT_EQ(state.step(), Step::kList);

  EXPECT_EQ(state.OnListed("7"), Duration::zero());

  EXPECT_EQ(state.step(), Step::kWatch);
  EXPECT_EQ(state.version(), "7");
}

TEST(ReflectorStateTest, OnlyTooOldVersionsAndBrokenStreamsRelist) {
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
    ReflectorState state = Watching();
    state.OnWatchEnded(status, 0, kNow);
    EXPECT_EQ(state.step(), step) << status;
  }
}

TEST(ReflectorStateTest, EventsAndBookmarksAdvanceTheVersion) {
  ReflectorState state = Watching();

  state.OnProgress("9");
  state.OnWatchEnded(absl::UnavailableError("gone"), 0, kNow);

  EXPECT_EQ(state.version(), "9");
}

TEST(ReflectorStateTest, AnOrderlyEndAfterEventsRewatchesAtOnce) {
  ReflectorState state = Watching();
  state.OnProgress("9");

  EXPECT_EQ(state.OnWatchEnded(absl::OkStatus(), 0, kNow), Duration::zero());
  // A server that only ends watches is not asked in a hot loop.
  EXPECT_EQ(state.OnWatchEnded(absl::OkStatus(), 0, kNow), milliseconds(400));
  EXPECT_EQ(state.OnWatchEnded(absl::OkStatus(), 0, kNow), milliseconds(800));
}

TEST(ReflectorStateTest, RepeatedTooOldVersionsBackOff) {
  ReflectorState state = Watching();
  Duration pause = Duration::zero();

  for (int i = 0; i < 20; ++i) {
    pause = state.OnWatchEnded(absl::OutOfRangeError("old"), 0, kNow);
    state.OnListed("7");
  }

  EXPECT_EQ(pause, seconds(30));
}

TEST(ReflectorStateTest, RetryAfterIsHonoured) {
  ReflectorState state;

  EXPECT_EQ(
      state.OnListFailed(ToStatus({.code = 429, .retry_after = seconds(9)}, "list"), 0.5, kNow),
      seconds(9));
}

}  // namespace
}  // namespace pushpull_operator
