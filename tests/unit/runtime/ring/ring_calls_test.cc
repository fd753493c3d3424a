// SPDX-License-Identifier: Apache-2.0
#include "runtime/ring/ring_calls.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

using ::testing::Each;

constexpr size_t kValues = 1000;

// A worker with a listener and a state of its own.
struct Member {
  Member(WorkerId its_id, RankListener its_listener, RingState its_state)
      : id(its_id), listener(std::move(its_listener)), state(std::move(its_state)) {}

  const WorkerId id;
  const RankListener listener;
  RingState state;
  Interrupt interrupt;
  std::unique_ptr<Communicator> ring;
  absl::Status status;
};

class RingCallsTest : public ::testing::Test {
 protected:
  void AddMembers(uint32_t count) {
    const PlacedTensor tensor = {
        .id = TensorId{0},
        .spec = {.name = "w",
                 .dims = {static_cast<int64_t>(kValues)},
                 .optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1}},
        .first_chunk = ChunkId{0},
        .shards = {}};
    for (uint32_t i = 0; i < count; ++i) {
      absl::StatusOr<RankListener> listener = RankListener::Listen({"127.0.0.1", 0});
      ASSERT_TRUE(listener.ok()) << listener.status();
      absl::StatusOr<RingState> state = RingState::Make({&tensor, 1});
      ASSERT_TRUE(state.ok()) << state.status();
      form_.workers.push_back(
          {.worker = WorkerId{i}, .address = absl::StrCat("127.0.0.1:", listener->port())});
      members_.push_back(
          std::make_unique<Member>(WorkerId{i}, *std::move(listener), *std::move(state)));
    }
  }

  // `call` of each member, on a thread of its own.
  template <typename Call>
  void ForAll(const Call& call) {
    std::vector<std::thread> threads;
    for (const auto& member : members_)
      threads.emplace_back([&call, &member] { member->status = call(*member); });
    for (std::thread& thread : threads) thread.join();
  }

  absl::Status Connect(Member& member) const {
    PUSHPULL_ASSIGN_OR_RETURN(member.ring,
                              ConnectRing(member.listener, form_, member.id, member.interrupt));
    return absl::OkStatus();
  }

  absl::Status TakeOneStep(Member& member) const {
    const std::vector<float> gradient(kValues, static_cast<float>(member.id.value() + 1));
    const std::vector<RingPush> pushes = {{.gradient = gradient}};
    return TakeStep(*member.ring, form_, pushes, 0, member.state);
  }

  FormRing form_{.epoch = {.term = Term{1}, .counter = 2}, .workers = {}, .token = {3, 4}};
  std::vector<std::unique_ptr<Member>> members_;
};

TEST_F(RingCallsTest, AllHaveTheValuesOfTheSourceAndTakeTheSameStep) {
  AddMembers(3);
  form_.source = 1;
  form_.copies = true;
  form_.mark = {.made_in = {.term = Term{1}, .counter = 1}, .step = Step{7}};
  members_[1]->state.SetInitial(0, std::vector<float>(kValues, 10), {}, 0);

  ForAll([&](Member& member) -> absl::Status {
    PUSHPULL_RETURN_IF_ERROR(Connect(member));
    PUSHPULL_RETURN_IF_ERROR(CopyState(*member.ring, form_, member.state));
    return TakeOneStep(member);
  });

  for (const auto& member : members_) {
    ASSERT_TRUE(member->status.ok()) << member->status;
    EXPECT_EQ(member->state.mark(), (RingMark{.made_in = form_.epoch, .step = Step{8}}));
    EXPECT_THAT(member->state.value(0), Each(8));  // the mean of 1, 2 and 3 is 2
  }
}

TEST_F(RingCallsTest, StepOfAWorkerThatIsGoneEndsWithAnErrorAndNoChange) {
  AddMembers(3);
  ForAll([&](Member& member) { return Connect(member); });

  ForAll([&](Member& member) -> absl::Status {
    if (member.id != WorkerId{2}) return TakeOneStep(member);
    member.ring.reset();
    return absl::OkStatus();
  });

  for (const auto& member : {members_[0].get(), members_[1].get()}) {
    EXPECT_EQ(member->status.code(), absl::StatusCode::kUnavailable) << member->status;
    EXPECT_EQ(member->state.mark(), RingMark{});
    EXPECT_THAT(member->state.value(0), Each(0));
  }
}

TEST_F(RingCallsTest, InterruptEndsAStepThatOthersDoNotTake) {
  AddMembers(2);
  ForAll([&](Member& member) { return Connect(member); });

  std::thread step([&] { members_[0]->status = TakeOneStep(*members_[0]); });
  members_[0]->interrupt.Set();
  step.join();

  EXPECT_EQ(members_[0]->status.code(), absl::StatusCode::kCancelled) << members_[0]->status;
}

TEST_F(RingCallsTest, InterruptEndsTheWaitForWorkersThatDoNotCome) {
  AddMembers(2);
  std::vector<std::thread> waits;
  for (const auto& member : members_) {
    if (member->id == WorkerId{1}) continue;
    waits.emplace_back([&] { member->status = Connect(*member); });
  }

  members_[0]->interrupt.Set();
  for (std::thread& wait : waits) wait.join();

  EXPECT_EQ(members_[0]->status.code(), absl::StatusCode::kCancelled) << members_[0]->status;
}

TEST_F(RingCallsTest, ConnectingToOneThatAnswersNotIsInterrupted) {
  AddMembers(2);
  std::thread wait([&] { members_[1]->status = Connect(*members_[1]); });

  members_[1]->interrupt.Set();
  wait.join();

  EXPECT_EQ(members_[1]->status.code(), absl::StatusCode::kCancelled) << members_[1]->status;
}

TEST_F(RingCallsTest, WorkerOutsideOfTheRingIsRefused) {
  AddMembers(1);
  const absl::Status status =
      ConnectRing(members_[0]->listener, form_, WorkerId{9}, members_[0]->interrupt).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pushpull
