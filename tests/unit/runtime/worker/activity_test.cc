// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/activity.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/membership/job_status.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using namespace std::chrono_literals;

// Two tensors, of one chunk each.
class ActivityWatchTest : public testing::Test {
 protected:
  ActivityWatchTest() {
    PlacedTensor first{.spec = {.name = "a", .dims = {4}}, .first_chunk = ChunkId{0}};
    first.shards = {ShardId{1}};
    PlacedTensor second{.spec = {.name = "b", .dims = {4}}, .first_chunk = ChunkId{1}};
    second.shards = {ShardId{2}};
    tensors_ = {first, second};
    chunks_.SetTensors(tensors_);
    watch_.SetTensors(tensors_);
  }

  SteadyTime At(Duration since_start) const { return start_ + since_start; }
  void Push(size_t tensor, uint64_t step, Duration at) {
    watch_.OnRequest({.type = FrameType::kPushPull, .tensor = tensor, .step = Step{step}}, At(at));
    chunks_.chunks()[tensor].push.emplace();
    chunks_.chunks()[tensor].push->server = ServerId{static_cast<uint32_t>(tensor)};
  }
  void Answer(size_t tensor, Duration at) {
    chunks_.chunks()[tensor].push.reset();
    watch_.OnAnswered(At(at));
  }
  std::string Current(Duration at) const {
    return ToString(watch_.Current(chunks_, Step{7}, At(at)));
  }

  const SteadyTime start_ = SteadyTime(1h);
  std::vector<PlacedTensor> tensors_;
  RequestTable chunks_;
  ActivityWatch watch_{WorkerId{0}, start_};
};

TEST_F(ActivityWatchTest, WorkerJoinsUntilItsValuesAreInPlace) {
  EXPECT_EQ(Current(3s), "joining for 3.0 s");

  watch_.OnBegun(At(4s));

  EXPECT_EQ(Current(6s), "computing for 2.0 s, step 7");
}

TEST_F(ActivityWatchTest, WorkerWithoutAllGradientsComputes) {
  watch_.OnBegun(At(0s));
  Push(1, 7, 2s);

  EXPECT_EQ(Current(5s), "computing for 3.0 s, step 7, last pushed tensor \"b\"");
}

TEST_F(ActivityWatchTest, WorkerThatHasPushedAllWaits) {
  watch_.OnBegun(At(0s));
  Push(1, 7, 2s);
  Push(0, 7, 4s);

  EXPECT_EQ(
      Current(5s),
      "waiting for 1.0 s, step 7, last pushed tensor \"a\", no answer from server-0, server-1");

  Answer(0, 6s);
  EXPECT_THAT(watch_.Current(chunks_, Step{7}, At(7s)).servers, ElementsAre(ServerId{1}));
}

TEST_F(ActivityWatchTest, NextStepIsComputedFromTheLastAnswerOn) {
  watch_.OnBegun(At(0s));
  Push(1, 7, 2s);
  Push(0, 7, 4s);
  Answer(0, 5s);
  Answer(1, 6s);

  EXPECT_EQ(Current(10s), "computing for 4.0 s, step 7, last pushed tensor \"a\"");

  // Of the next step.
  Push(1, 8, 12s);
  EXPECT_EQ(Current(13s), "computing for 1.0 s, step 7, last pushed tensor \"b\"");
}

TEST_F(ActivityWatchTest, PullIsNamed) {
  watch_.OnBegun(At(0s));
  watch_.OnRequest({.type = FrameType::kPull, .tensor = 1}, At(2s));
  chunks_.chunks()[1].pull.emplace();
  chunks_.chunks()[1].pull->server = ServerId{3};

  EXPECT_EQ(Current(5s), "pulling tensor \"b\" for 3.0 s, no answer from server-3");
}

TEST_F(ActivityWatchTest, BarrierIsNamedWhileItLasts) {
  watch_.OnBegun(At(0s));
  const auto barrier = std::make_shared<ExchangeOperation>(
      ExchangeSpec{.op = ExchangeOp::kBarrier}, Step{7}, 7, HostBuffer());
  watch_.OnExchange(barrier, At(2s));

  EXPECT_EQ(Current(5s), "in a collective for 3.0 s: \"barrier\"");

  barrier->pending.Finish();
  EXPECT_EQ(Current(5s), "computing for 5.0 s, step 7");
}

TEST_F(ActivityWatchTest, ChangeOfTheModeAndLeavingAreNamed) {
  watch_.OnBegun(At(0s));
  watch_.OnHeld(At(2s));
  EXPECT_EQ(Current(5s), "waiting for the change of the mode for 3.0 s, step 7");

  watch_.OnBegun(At(6s));
  EXPECT_EQ(Current(7s), "computing for 1.0 s, step 7");

  watch_.OnLeaving(At(8s));
  watch_.OnBegun(At(9s));
  EXPECT_EQ(Current(10s), "leaving for 2.0 s");
}

}  // namespace
}  // namespace pushpull
