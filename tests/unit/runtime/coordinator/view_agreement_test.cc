// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/view_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using testing::ElementsAre;

constexpr ServerId kServer0{0};
constexpr ServerId kServer1{1};
constexpr Incarnation kFirst{11};
constexpr Incarnation kSecond{22};

class ViewAgreementTest : public testing::Test {
 protected:
  ViewChange Accept(const ViewChange& proposed, ServerId server) {
    return agreement_.Answer(server, {proposed.propose->number, true, Step{0}});
  }
  ViewChange AcceptAll(const ViewChange& proposed) {
    Accept(proposed, kServer0);
    return Accept(proposed, kServer1);
  }
  void StartWithAnnAndBob() {
    AcceptAll(agreement_.Join({{kAnn, kFirst}, {kBob, kFirst}}));
    agreement_.OnProgress(kAnn, Step{0});
    agreement_.OnProgress(kBob, Step{0});
  }

  ViewAgreement agreement_{{kServer0, kServer1}};
};

TEST_F(ViewAgreementTest, TheFirstViewStartsAtStepZeroWithAllWhoAreReady) {
  const ViewChange proposed = agreement_.Join({{kAnn, kFirst}, {kBob, kFirst}});
  ASSERT_TRUE(proposed.propose.has_value());
  EXPECT_FALSE(Accept(proposed, kServer0).activate.has_value());

  const ViewChange agreed = Accept(proposed, kServer1);

  ASSERT_TRUE(agreed.activate.has_value());
  EXPECT_THAT(
      agreed.admitted,
      ElementsAre(ViewMember{kAnn, kFirst, Step{0}, {}}, ViewMember{kBob, kFirst, Step{0}, {}}));
}

TEST_F(ViewAgreementTest, ARejectedProposalIsRaisedAndRepeated) {
  StartWithAnnAndBob();
  agreement_.Remove(kBob);
  const ViewChange proposed = agreement_.Join({{kBob, kSecond}});
  agreement_.Answer(kServer0, {proposed.propose->number, false, Step{40}});

  const ViewChange again = agreement_.Answer(kServer1, {proposed.propose->number, true, Step{41}});

  ASSERT_TRUE(again.propose.has_value());
  EXPECT_GT(again.propose->number, proposed.propose->number);
  EXPECT_GT(again.propose->Find(kBob)->from_step, Step{41});
  EXPECT_FALSE(again.activate.has_value());
}

TEST_F(ViewAgreementTest, MembersKeepTheirGroups) {
  agreement_.SetGroups({{kAnn, 5}, {kBob, 6}});
  StartWithAnnAndBob();

  const ViewChange change = agreement_.SetGroups({{kBob, 5}});

  ASSERT_TRUE(change.activate.has_value());
  EXPECT_EQ(change.activate->Find(kAnn)->group, 5U);
  EXPECT_EQ(change.activate->Find(kBob)->group, 5U);
  EXPECT_FALSE(agreement_.SetGroups({{kAnn, 5}, {kBob, 5}}).activate.has_value());
}

TEST_F(ViewAgreementTest, GroupsOfJoinersAreProposed) {
  StartWithAnnAndBob();
  agreement_.Remove(kBob);
  EXPECT_FALSE(agreement_.SetGroups({{kBob, 6}}).activate.has_value());

  const ViewChange proposed = agreement_.Join({{kBob, kSecond}});

  EXPECT_EQ(proposed.propose->Find(kBob)->group, 6U);
  EXPECT_EQ(proposed.propose->Find(kAnn)->group, 0U);
}

TEST_F(ViewAgreementTest, ADeathTakesEffectWithoutAgreement) {
  StartWithAnnAndBob();

  const ViewChange change = agreement_.Remove(kBob);

  ASSERT_TRUE(change.activate.has_value());
  EXPECT_EQ(change.activate->Find(kBob), nullptr);
  EXPECT_NE(change.activate->Find(kAnn), nullptr);
}

TEST_F(ViewAgreementTest, ADeathReplacesTheProposal) {
  StartWithAnnAndBob();
  agreement_.Remove(kBob);
  const ViewChange proposed = agreement_.Join({{kBob, kSecond}});

  const ViewChange change = agreement_.Remove(kAnn);

  ASSERT_TRUE(change.activate.has_value());
  ASSERT_TRUE(change.propose.has_value());
  EXPECT_GT(change.propose->number, change.activate->number);
  EXPECT_EQ(change.propose->Find(kAnn), nullptr);
  EXPECT_EQ(change.propose->Find(kBob)->from_step, Step{0});
}

TEST_F(ViewAgreementTest, AnswersToAnOlderProposalAreIgnored) {
  StartWithAnnAndBob();
  agreement_.Remove(kBob);
  const ViewChange stale = agreement_.Join({{kBob, kSecond}});
  agreement_.Remove(kAnn);

  const ViewChange change = AcceptAll(stale);

  EXPECT_FALSE(change.activate.has_value());
  EXPECT_TRUE(change.admitted.empty());
}

TEST_F(ViewAgreementTest, WithNobodyLeftAJoinerStartsFromWhatThereIs) {
  StartWithAnnAndBob();
  agreement_.Remove(kAnn);
  agreement_.Remove(kBob);

  const ViewChange proposed = agreement_.Join({{kBob, kSecond}});

  EXPECT_EQ(proposed.propose->Find(kBob)->from_step, Step{0});
}

TEST_F(ViewAgreementTest, AStrandedJoinerTakesWhatThereIs) {
  StartWithAnnAndBob();
  agreement_.Remove(kBob);
  const ViewChange first = agreement_.Join({{kBob, kSecond}});
  agreement_.Answer(kServer0, {first.propose->number, false, Step{40}});
  const ViewChange again = agreement_.Answer(kServer1, {first.propose->number, false, Step{40}});
  AcceptAll(again);
  ASSERT_GT(agreement_.active().Find(kBob)->from_step, Step{40});

  const ViewChange change = agreement_.Leave(kAnn, Step{40});

  EXPECT_EQ(change.activate->Find(kBob)->from_step, Step{0});
}

TEST_F(ViewAgreementTest, AJoinerWhoseHelpersReachItsFirstStepKeepsIt) {
  StartWithAnnAndBob();
  agreement_.Remove(kBob);
  const ViewChange first = agreement_.Join({{kBob, kSecond}});
  agreement_.Answer(kServer0, {first.propose->number, false, Step{40}});
  AcceptAll(agreement_.Answer(kServer1, {first.propose->number, false, Step{40}}));
  const Step from = agreement_.active().Find(kBob)->from_step;

  const ViewChange change = agreement_.Leave(kAnn, Step{100});

  EXPECT_EQ(change.activate->Find(kBob)->from_step, from);
}

TEST_F(ViewAgreementTest, NumbersOnlyRise) {
  StartWithAnnAndBob();
  uint64_t last = agreement_.active().number;

  for (int i = 0; i < 5; ++i) {
    const ViewChange removed = agreement_.Remove(kBob);
    EXPECT_GT(removed.activate->number, last);
    const ViewChange proposed = agreement_.Join({{kBob, kSecond}});
    EXPECT_GT(proposed.propose->number, removed.activate->number);
    AcceptAll(proposed);
    last = agreement_.active().number;
  }
}

TEST_F(ViewAgreementTest, AModeBeginsWithOneStepForAllMembers) {
  StartWithAnnAndBob();

  const ViewChange proposed = agreement_.ChangeMode({.mode = SyncMode::kAsync}, Step{7});
  const ViewChange agreed = AcceptAll(proposed);

  ASSERT_TRUE(agreed.activate.has_value());
  EXPECT_EQ(agreed.activate->consistency,
            (Consistency{.mode = SyncMode::kAsync, .from_step = Step{7}}));
  EXPECT_EQ(agreed.activate->Find(kAnn)->from_step, Step{7});
  EXPECT_EQ(agreed.activate->Find(kBob)->from_step, Step{7});
  EXPECT_THAT(agreed.admitted, testing::IsEmpty());
}

TEST_F(ViewAgreementTest, AModeSkipsTheNumbersThatServersHaveUsed) {
  StartWithAnnAndBob();
  const ViewChange proposed = agreement_.ChangeMode({.mode = SyncMode::kSync}, Step{7});
  agreement_.Answer(kServer0, {proposed.propose->number, true, Step{5}});

  const ViewChange again = agreement_.Answer(kServer1, {proposed.propose->number, false, Step{40}});

  ASSERT_TRUE(again.propose.has_value());
  EXPECT_EQ(again.propose->consistency.from_step, Step{40});
  EXPECT_EQ(again.propose->consistency.steps_skipped, 33U);
}

TEST_F(ViewAgreementTest, AModeIsStillAgreedOnWhenAMemberDiesMeanwhile) {
  StartWithAnnAndBob();
  agreement_.ChangeMode({.mode = SyncMode::kAsync}, Step{7});

  const ViewChange death = agreement_.Remove(kBob);

  ASSERT_TRUE(death.activate.has_value());
  EXPECT_TRUE(death.activate->consistency.is_sync());
  ASSERT_TRUE(death.propose.has_value());
  EXPECT_EQ(AcceptAll(death).activate->consistency.mode, SyncMode::kAsync);
}

TEST_F(ViewAgreementTest, AsyncRestartsBeginAboveCompletedSteps) {
  StartWithAnnAndBob();
  AcceptAll(agreement_.ChangeMode({.mode = SyncMode::kAsync}, Step{7}));
  agreement_.Remove(kAnn);
  agreement_.Remove(kBob);
  const ViewChange proposed = agreement_.Join({{kAnn, kSecond}});
  agreement_.Answer(kServer0, {proposed.propose->number, false, Step{40}});

  const ViewChange again = agreement_.Answer(kServer1, {proposed.propose->number, true, Step{30}});

  ASSERT_TRUE(again.propose.has_value());
  EXPECT_GE(again.propose->Find(kAnn)->from_step, Step{40});
}

}  // namespace
}  // namespace pushpull
