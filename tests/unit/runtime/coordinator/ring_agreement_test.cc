// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/ring_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr WorkerId kAnn{0};
constexpr WorkerId kBob{1};
constexpr WorkerId kCid{2};
constexpr Incarnation kFirst{7};
constexpr Incarnation kSecond{8};

class RingAgreementTest : public ::testing::Test {
 protected:
  static RingStopped Stopped(const ViewChange& change, std::optional<RingMark> mark) {
    return {.epoch = change.stop->epoch, .mark = mark};
  }
  static RingNews Formed(const ViewChange& change) {
    return {.epoch = change.form->epoch, .status = absl::OkStatus()};
  }
  // A mark of the ring that was formed last.
  RingMark MarkAt(uint64_t step) const { return {.made_in = ring_, .step = Step{step}}; }

  // Ann and Bob train, and their ring is there.
  void StartWithTwo() {
    const ViewChange asked = agreement_.Join({{kAnn, kFirst}, {kBob, kFirst}});
    agreement_.OnStopped(kAnn, Stopped(asked, std::nullopt));
    const ViewChange formed = agreement_.OnStopped(kBob, Stopped(asked, std::nullopt));
    ring_ = formed.form->epoch;
    agreement_.OnNews(kAnn, Formed(formed));
    agreement_.OnNews(kBob, Formed(formed));
  }

  SavedState saved_;
  RingAgreement agreement_{Term{3}, 99, {.mode = SyncMode::kAllReduce}, saved_};
  Epoch ring_;
};

std::vector<WorkerId> WorkersOf(const FormRing& form) {
  std::vector<WorkerId> workers;
  for (const RingWorker& worker : form.workers) workers.push_back(worker.worker);
  return workers;
}

TEST_F(RingAgreementTest, FirstRingBeginsWithTheValuesOfTheLowestWorker) {
  const ViewChange asked = agreement_.Join({{kBob, kFirst}, {kAnn, kFirst}});
  const ViewChange waiting = agreement_.OnStopped(kBob, Stopped(asked, std::nullopt));
  const ViewChange formed = agreement_.OnStopped(kAnn, Stopped(asked, std::nullopt));

  EXPECT_THAT(asked.stopped, ElementsAre(kAnn, kBob));
  EXPECT_FALSE(waiting.form);
  ASSERT_TRUE(formed.form);
  EXPECT_THAT(WorkersOf(*formed.form), ElementsAre(kAnn, kBob));
  EXPECT_TRUE(formed.form->is_fresh);
  EXPECT_TRUE(formed.form->copies);
  EXPECT_EQ(formed.form->source, 0U);
  EXPECT_EQ(formed.form->token[0], 99U);
  EXPECT_EQ(formed.admitted.size(), 2U);
  EXPECT_EQ(formed.activate->members.size(), 2U);
}

TEST_F(RingAgreementTest, JoiningAgainChangesNothing) {
  StartWithTwo();

  const ViewChange again = agreement_.Join({{kAnn, kFirst}});

  EXPECT_FALSE(again.stop);
  EXPECT_TRUE(agreement_.is_running());
}

TEST_F(RingAgreementTest, WorkersOfOtherRacksConnectAnew) {
  const ViewChange none = agreement_.Regroup();
  StartWithTwo();

  const ViewChange asked = agreement_.Regroup();
  agreement_.OnStopped(kAnn, Stopped(asked, MarkAt(5)));
  const ViewChange formed = agreement_.OnStopped(kBob, Stopped(asked, MarkAt(5)));

  EXPECT_FALSE(none.stop);
  ASSERT_TRUE(formed.form);
  EXPECT_FALSE(formed.form->copies);
  EXPECT_EQ(formed.form->mark, MarkAt(5));
}

TEST_F(RingAgreementTest, NextProcessOfADeadWorkerMayJoinBeforeTheNextRing) {
  StartWithTwo();
  agreement_.Remove(kBob);

  EXPECT_FALSE(agreement_.IsMember(kBob));
  const ViewChange asked = agreement_.Join({{kBob, kSecond}});
  EXPECT_TRUE(agreement_.IsMember(kBob));
  agreement_.OnStopped(kBob, Stopped(asked, std::nullopt));
  const ViewChange formed = agreement_.OnStopped(kAnn, Stopped(asked, MarkAt(5)));

  ASSERT_TRUE(formed.form);
  ASSERT_EQ(formed.admitted.size(), 1U);
  EXPECT_EQ(formed.admitted[0].incarnation, kSecond);
}

TEST_F(RingAgreementTest, JoinerGetsTheValuesAndContributesToTheStepUnderWay) {
  StartWithTwo();

  const ViewChange asked = agreement_.Join({{kCid, kFirst}});
  agreement_.OnStopped(kCid, Stopped(asked, std::nullopt));
  agreement_.OnStopped(kBob, Stopped(asked, MarkAt(5)));
  const ViewChange formed = agreement_.OnStopped(kAnn, Stopped(asked, MarkAt(5)));

  ASSERT_TRUE(formed.form);
  EXPECT_TRUE(formed.form->copies);
  EXPECT_FALSE(formed.form->is_fresh);
  EXPECT_EQ(formed.form->mark, MarkAt(5));
  ASSERT_EQ(formed.admitted.size(), 1U);
  EXPECT_EQ(formed.admitted[0].worker, kCid);
  EXPECT_EQ(formed.admitted[0].from_step, Step{5});
}

TEST_F(RingAgreementTest, DeadWorkerLeavesTheOthersTheirStep) {
  StartWithTwo();

  const ViewChange asked = agreement_.Remove(kAnn);
  const ViewChange formed = agreement_.OnStopped(kBob, Stopped(asked, MarkAt(5)));

  EXPECT_THAT(asked.stopped, ElementsAre(kBob));
  ASSERT_TRUE(formed.form);
  EXPECT_THAT(WorkersOf(*formed.form), ElementsAre(kBob));
  EXPECT_EQ(formed.form->mark, MarkAt(5));
  EXPECT_FALSE(formed.form->copies);
}

TEST_F(RingAgreementTest, StepThatOneWorkerHasIsGivenToTheOthers) {
  StartWithTwo();
  const ViewChange asked = agreement_.OnNews(
      kAnn, {.epoch = ring_, .status = absl::UnavailableError("rank 1 has closed the connection")});

  agreement_.OnStopped(kAnn, Stopped(asked, MarkAt(5)));
  const ViewChange formed = agreement_.OnStopped(kBob, Stopped(asked, MarkAt(6)));

  EXPECT_THAT(asked.problem, HasSubstr("rank 1 has closed the connection"));
  ASSERT_TRUE(formed.form);
  EXPECT_EQ(formed.form->mark, MarkAt(6));
  EXPECT_EQ(formed.form->source, 1U);
  EXPECT_TRUE(formed.form->copies);
}

TEST_F(RingAgreementTest, ValuesOfANewerRingCountAgainstMoreSteps) {
  StartWithTwo();
  const RingMark given_up = MarkAt(6);
  const ViewChange lost = agreement_.Remove(kAnn);
  const ViewChange alone = agreement_.OnStopped(kBob, Stopped(lost, MarkAt(5)));
  const RingMark newer{.made_in = alone.form->epoch, .step = Step{6}};

  const ViewChange asked = agreement_.Join({{kAnn, kFirst}});
  agreement_.OnStopped(kAnn, Stopped(asked, given_up));
  const ViewChange formed = agreement_.OnStopped(kBob, Stopped(asked, newer));

  ASSERT_TRUE(formed.form);
  EXPECT_EQ(formed.form->mark, newer);
  EXPECT_EQ(formed.form->source, 1U);
}

TEST_F(RingAgreementTest, LeaverGoesWhenAnotherHasTheNewestValues) {
  StartWithTwo();

  const ViewChange asked = agreement_.Leave(kAnn, Step{6}, false);
  agreement_.OnStopped(kAnn, Stopped(asked, MarkAt(6)));
  const ViewChange formed = agreement_.OnStopped(kBob, Stopped(asked, MarkAt(6)));

  ASSERT_TRUE(formed.form);
  EXPECT_THAT(WorkersOf(*formed.form), ElementsAre(kBob));
  EXPECT_EQ(formed.activate->Find(kAnn), nullptr);
}

TEST_F(RingAgreementTest, LeaverWithTheNewestValuesGivesThemFirst) {
  StartWithTwo();

  const ViewChange asked = agreement_.Leave(kAnn, Step{6}, false);
  agreement_.OnStopped(kAnn, Stopped(asked, MarkAt(6)));
  const ViewChange both = agreement_.OnStopped(kBob, Stopped(asked, MarkAt(5)));
  ASSERT_TRUE(both.form);
  agreement_.OnNews(kAnn, Formed(both));
  const ViewChange again = agreement_.OnNews(kBob, Formed(both));
  agreement_.OnStopped(kAnn, Stopped(again, MarkAt(6)));
  const ViewChange last = agreement_.OnStopped(kBob, Stopped(again, MarkAt(6)));

  EXPECT_THAT(WorkersOf(*both.form), ElementsAre(kAnn, kBob));
  EXPECT_EQ(both.form->source, 0U);
  ASSERT_TRUE(last.form);
  EXPECT_THAT(WorkersOf(*last.form), ElementsAre(kBob));
}

TEST_F(RingAgreementTest, LastWorkersLeaveWithoutARing) {
  StartWithTwo();

  agreement_.Leave(kAnn, Step{6}, false);
  const ViewChange asked = agreement_.Leave(kBob, Step{6}, false);
  agreement_.OnStopped(kAnn, Stopped(asked, MarkAt(6)));
  const ViewChange over = agreement_.OnStopped(kBob, Stopped(asked, MarkAt(6)));

  EXPECT_FALSE(over.form);
  ASSERT_TRUE(over.activate);
  EXPECT_TRUE(over.activate->members.empty());
}

TEST_F(RingAgreementTest, AnswersToEarlierEpochsAreIgnored) {
  StartWithTwo();
  const ViewChange first = agreement_.Join({{kCid, kFirst}});
  agreement_.OnStopped(kAnn, Stopped(first, MarkAt(5)));
  agreement_.OnStopped(kBob, Stopped(first, MarkAt(5)));
  const ViewChange second = agreement_.Remove(kBob);

  const ViewChange late = agreement_.OnStopped(kCid, Stopped(first, std::nullopt));
  agreement_.OnStopped(kAnn, Stopped(second, MarkAt(5)));
  const ViewChange formed = agreement_.OnStopped(kCid, Stopped(second, std::nullopt));

  EXPECT_FALSE(late.form);
  ASSERT_TRUE(formed.form);
  EXPECT_THAT(WorkersOf(*formed.form), ElementsAre(kAnn, kCid));
}

TEST_F(RingAgreementTest, LossOfAllValuesIsReported) {
  StartWithTwo();
  agreement_.Remove(kAnn);
  agreement_.Remove(kBob);

  const ViewChange asked = agreement_.Join({{kAnn, kSecond}});
  const ViewChange formed = agreement_.OnStopped(kAnn, Stopped(asked, std::nullopt));

  ASSERT_TRUE(formed.form);
  EXPECT_TRUE(formed.form->is_fresh);
  EXPECT_THAT(formed.problem, HasSubstr("training begins again with step 0"));
}

TEST_F(RingAgreementTest, RingWithoutValuesBeginsWithWhatIsSaved) {
  saved_ = {.folder = "/checkpoints/step-000000000008", .step = Step{8}};
  const ViewChange asked = agreement_.Join({{kAnn, kFirst}});
  const ViewChange first = agreement_.OnStopped(kAnn, Stopped(asked, std::nullopt));
  agreement_.OnNews(kAnn, Formed(first));
  saved_ = {.folder = "/checkpoints/step-000000000020", .step = Step{20}};
  agreement_.Remove(kAnn);
  const ViewChange again = agreement_.Join({{kBob, kFirst}});
  const ViewChange second = agreement_.OnStopped(kBob, Stopped(again, std::nullopt));

  EXPECT_EQ(first.form->restore_from, "/checkpoints/step-000000000008");
  EXPECT_EQ(first.form->mark.step, Step{8});
  EXPECT_EQ(first.admitted.front().from_step, Step{8});
  EXPECT_THAT(first.problem, testing::IsEmpty());
  EXPECT_EQ(second.form->restore_from, "/checkpoints/step-000000000020");
  EXPECT_EQ(second.form->mark.step, Step{20});
  EXPECT_THAT(second.problem, HasSubstr("with the checkpoint of step 20"));
}

TEST_F(RingAgreementTest, RingWithValuesReadsNoCheckpoint) {
  StartWithTwo();
  saved_ = {.folder = "/checkpoints/step-000000000008", .step = Step{8}};

  const ViewChange asked = agreement_.Remove(kBob);
  const ViewChange formed = agreement_.OnStopped(kAnn, Stopped(asked, MarkAt(5)));

  EXPECT_EQ(formed.form->restore_from, "");
  EXPECT_EQ(formed.form->mark, MarkAt(5));
}

TEST_F(RingAgreementTest, RingsThatFailWithoutAStepEndTheJob) {
  StartWithTwo();
  ViewChange change;
  for (int i = 0; i < RingAgreement::kFailuresMax; ++i) {
    change = agreement_.OnNews(
        kAnn, {.epoch = ring_, .status = absl::UnavailableError("connection refused")});
    if (!change.stop) break;
    agreement_.OnStopped(kAnn, Stopped(change, RingMark{}));
    ring_ = agreement_.OnStopped(kBob, Stopped(change, RingMark{})).form->epoch;
  }

  EXPECT_THAT(change.failure, HasSubstr("worker-0: connection refused"));
}

}  // namespace
}  // namespace pushpull
