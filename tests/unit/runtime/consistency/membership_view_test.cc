// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/membership_view.h"

#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

constexpr WorkerId kAnn{0};
constexpr WorkerId kBob{1};
constexpr Incarnation kFirst{11};
constexpr Incarnation kSecond{22};

View Of(uint64_t number, std::vector<ViewMember> members) {
  return {number, std::move(members)};
}

std::vector<WorkerId> Required(const MembershipView& membership, Step step) {
  std::vector<WorkerId> workers;
  membership.ForEachRequired(step, [&](WorkerId worker) { workers.push_back(worker); });
  return workers;
}

TEST(MembershipViewTest, AMemberCountsFromItsFirstToItsLastStep) {
  MembershipView membership;

  membership.Activate(Of(1, {{kAnn, kFirst, Step{3}, Step{5}}}));

  EXPECT_FALSE(membership.IsMember(kAnn, kFirst, Step{2}));
  EXPECT_TRUE(membership.IsMember(kAnn, kFirst, Step{3}));
  EXPECT_TRUE(membership.IsMember(kAnn, kFirst, Step{4}));
  EXPECT_FALSE(membership.IsMember(kAnn, kFirst, Step{5}));
  EXPECT_FALSE(membership.IsMember(kAnn, kSecond, Step{4}));
}

TEST(MembershipViewTest, AGroupBelongsToAProcessOfEitherView) {
  const ViewMember ann{.worker = kAnn, .incarnation = kFirst, .group = 5};
  const ViewMember bob{.worker = kBob, .incarnation = kFirst, .from_step = Step{7}, .group = 5};
  MembershipView membership;
  membership.Activate(Of(1, {ann}));
  ASSERT_TRUE(membership.Propose(Of(2, {ann, bob}), Step{7}));

  EXPECT_EQ(membership.GroupOf(kAnn, kFirst), 5U);
  EXPECT_EQ(membership.GroupOf(kBob, kFirst), 5U);
  EXPECT_EQ(membership.GroupOf(kAnn, kSecond), 0U);
  EXPECT_EQ(membership.GroupOf(WorkerId{2}, kFirst), 0U);
}

TEST(MembershipViewTest, AProposedJoinerIsWaitedForBeforeItsViewIsActive) {
  MembershipView membership;
  membership.Activate(Of(1, {{kAnn, kFirst, Step{0}, {}}}));

  const bool is_accepted = membership.Propose(
      Of(2, {{kAnn, kFirst, Step{0}, {}}, {kBob, kFirst, Step{7}, {}}}), Step{7});

  ASSERT_TRUE(is_accepted);
  EXPECT_EQ(Required(membership, Step{6}), (std::vector{kAnn, kAnn}));
  EXPECT_EQ(Required(membership, Step{7}), (std::vector{kAnn, kAnn, kBob}));
  EXPECT_TRUE(membership.IsMember(kBob, kFirst, Step{7}));
}

TEST(MembershipViewTest, RefusesAJoinerWhoseFirstStepIsTaken) {
  MembershipView membership;
  membership.Activate(Of(1, {{kAnn, kFirst, Step{0}, {}}}));

  const bool is_accepted = membership.Propose(
      Of(2, {{kAnn, kFirst, Step{0}, {}}, {kBob, kFirst, Step{6}, {}}}), Step{7});

  EXPECT_FALSE(is_accepted);
  EXPECT_FALSE(membership.proposed().has_value());
}

TEST(MembershipViewTest, AFullRestartMayBeginAtAnyStep) {
  MembershipView membership;
  membership.Activate(Of(1, {{kAnn, kFirst, Step{0}, {}}}));

  const bool is_accepted = membership.Propose(Of(2, {{kAnn, kSecond, Step{0}, {}}}), Step{7});

  EXPECT_TRUE(is_accepted);
}

TEST(MembershipViewTest, ActivationReportsThatNoMemberIsLeft) {
  MembershipView membership;

  EXPECT_FALSE(
      membership.Activate(Of(1, {{kAnn, kFirst, Step{0}, {}}, {kBob, kFirst, Step{0}, {}}})));
  EXPECT_FALSE(membership.Activate(Of(2, {{kAnn, kFirst, Step{0}, {}}})));
  EXPECT_TRUE(membership.Activate(Of(3, {{kAnn, kSecond, Step{0}, {}}})));
}

TEST(MembershipViewTest, OlderViewsChangeNothing) {
  MembershipView membership;
  const View newer = Of(5, {{kAnn, kFirst, Step{0}, {}}});
  membership.Activate(newer);

  membership.Activate(Of(4, {{kBob, kFirst, Step{0}, {}}}));
  const bool is_accepted = membership.Propose(Of(5, {{kBob, kFirst, Step{9}, {}}}), Step{0});

  EXPECT_FALSE(is_accepted);
  EXPECT_EQ(membership.active(), newer);
}

TEST(MembershipViewTest, AModeDoesNotBeginWithACompletedStep) {
  MembershipView membership;
  const ViewMember ada{WorkerId{0}, Incarnation{1}, Step{0}, std::nullopt};
  membership.Activate({.number = 1, .members = {ada}});
  View next{.number = 2,
            .members = {ada},
            .consistency = {.mode = SyncMode::kAsync, .from_step = Step{7}}};

  EXPECT_FALSE(membership.Propose(next, Step{8}));
  EXPECT_TRUE(membership.Propose(next, Step{7}));
}

TEST(MembershipViewTest, StepsOfAProposedModeWait) {
  MembershipView membership;
  const ViewMember ada{WorkerId{0}, Incarnation{1}, Step{0}, std::nullopt};
  membership.Activate({.number = 1, .members = {ada}});
  const View next{.number = 2,
                  .members = {ada},
                  .consistency = {.mode = SyncMode::kAsync, .from_step = Step{7}}};

  membership.Propose(next, Step{7});

  EXPECT_FALSE(membership.IsOfNextMode(Step{6}));
  EXPECT_TRUE(membership.IsOfNextMode(Step{7}));
  membership.Activate(next);
  EXPECT_FALSE(membership.IsOfNextMode(Step{7}));
}

TEST(MembershipViewTest, AnAsyncJoinerNeverBeginsWithACompletedStep) {
  MembershipView membership;
  const Consistency async{.mode = SyncMode::kAsync};
  const ViewMember before{WorkerId{0}, Incarnation{1}, Step{0}, std::nullopt};
  const ViewMember after{WorkerId{0}, Incarnation{2}, Step{0}, std::nullopt};
  membership.Activate({.number = 1, .members = {before}, .consistency = async});

  EXPECT_FALSE(
      membership.Propose({.number = 2, .members = {after}, .consistency = async}, Step{5}));
}

TEST(MembershipViewTest, AQuorumIsTheDesiredWorkersWithoutBackups) {
  MembershipView membership;
  View view = Of(1,
                 {{WorkerId{0}, kFirst, Step{0}, {}},
                  {WorkerId{1}, kFirst, Step{0}, {}},
                  {WorkerId{2}, kFirst, Step{8}, {}}});
  view.consistency.backup_workers = 1;
  membership.Activate(view);

  const auto least = [&](Step step, uint32_t desired, bool has_samples = true) {
    size_t asked = 0;
    while (!membership.IsQuorum(step, desired, asked, has_samples)) ++asked;
    return asked;
  };
  EXPECT_EQ(least(Step{8}, 3), 2U);
  EXPECT_EQ(least(Step{8}, 5), 3U);  // no more than there are
  EXPECT_EQ(least(Step{7}, 5), 2U);
  EXPECT_EQ(least(Step{7}, 2), 1U);
  EXPECT_EQ(least(Step{7}, 1), 1U);
  // Whoever has the samples of the step may still compute, unless all have said that they have
  // none.
  EXPECT_EQ(least(Step{8}, 3, false), 3U);
}

}  // namespace
}  // namespace pushpull
