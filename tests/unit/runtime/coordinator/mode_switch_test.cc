// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/mode_switch.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Duration kPatience = std::chrono::seconds(30);

View ViewOf(std::vector<WorkerId> workers, SyncMode mode) {
  View view{.number = 3, .members = {}, .consistency = {.mode = mode}};
  for (const WorkerId worker : workers)
    view.members.push_back({worker, Incarnation{1}, Step{0}, std::nullopt});
  return view;
}

TEST(WantedModeTest, WhatIsNotGivenStays) {
  const Consistency bounded{.mode = SyncMode::kBounded, .staleness = 4};

  const auto wider = WantedMode(bounded, {.staleness = 8}, {});
  const auto same = WantedMode(bounded, {.mode = SyncMode::kBounded}, {});

  ASSERT_TRUE(wider.ok() && same.ok());
  EXPECT_EQ(wider->mode, SyncMode::kBounded);
  EXPECT_EQ(wider->staleness, 8U);
  EXPECT_EQ(same->staleness, 4U);
}

TEST(WantedModeTest, AJobThatNeedsSyncKeepsIt) {
  const ModeChange async{.mode = SyncMode::kAsync};

  const auto deterministic = WantedMode({}, async, {.is_deterministic = true});
  const auto divided = WantedMode({}, async, {.divides_samples = true});
  const auto leased = WantedMode({.mode = SyncMode::kBounded}, async, {.divides_samples = true});

  EXPECT_THAT(std::string(deterministic.status().message()), HasSubstr("spec.sync.deterministic"));
  EXPECT_THAT(std::string(divided.status().message()), HasSubstr("spec.sync.mode"));
  EXPECT_TRUE(leased.ok()) << leased.status();
}

TEST(WantedModeTest, GroupsThatSumNeedSyncWithoutBackupWorkersAndGate) {
  const ModeRules rules{.sums_locally = true, .workers = 3};

  for (const ModeChange& change : {ModeChange{.mode = SyncMode::kAsync},
                                   ModeChange{.backup_workers = 1},
                                   ModeChange{.gated = true}}) {
    EXPECT_THAT(std::string(WantedMode({}, change, rules).status().message()),
                HasSubstr("spec.sync.localReduce"));
  }
  EXPECT_TRUE(WantedMode({}, {.mode = SyncMode::kSync}, rules).ok());
}

TEST(WantedModeTest, BackupWorkersAreForSyncAndFewerThanTheWorkers) {
  const Consistency backups{.backup_workers = 1};
  const ModeRules rules{.workers = 3};

  const auto kept = WantedMode(backups, {.mode = SyncMode::kSync}, rules);
  const auto async = WantedMode(backups, {.mode = SyncMode::kAsync}, rules);
  const auto both = WantedMode(backups, {.mode = SyncMode::kAsync, .backup_workers = 1}, rules);
  const auto many = WantedMode(backups, {.backup_workers = 3}, rules);

  ASSERT_TRUE(kept.ok() && async.ok());
  EXPECT_EQ(kept->backup_workers, 1U);
  EXPECT_EQ(async->backup_workers, 0U);
  EXPECT_THAT(std::string(both.status().message()), HasSubstr("spec.sync.backupWorkers: needs"));
  EXPECT_THAT(std::string(many.status().message()), HasSubstr("spec.workers.replicas (3), is 3"));
}

TEST(WantedModeTest, TheGateIsForSyncWithoutBackupWorkers) {
  const Consistency gated{.gated = true};
  const ModeRules rules{.workers = 3};

  const auto kept = WantedMode(gated, {.mode = SyncMode::kSync}, rules);
  const auto opened = WantedMode(gated, {.gated = false}, rules);
  const auto async = WantedMode(gated, {.mode = SyncMode::kAsync}, rules);
  const auto both = WantedMode(gated, {.mode = SyncMode::kAsync, .gated = true}, rules);
  const auto backups = WantedMode(gated, {.backup_workers = 1}, rules);
  const auto instead = WantedMode(gated, {.backup_workers = 1, .gated = false}, rules);

  ASSERT_TRUE(kept.ok() && opened.ok() && async.ok() && instead.ok());
  EXPECT_TRUE(kept->gated);
  EXPECT_FALSE(opened->gated);
  EXPECT_FALSE(async->gated);
  EXPECT_EQ(instead->backup_workers, 1U);
  EXPECT_THAT(std::string(both.status().message()),
              HasSubstr("spec.sync.gated: needs spec.sync.mode"));
  EXPECT_THAT(std::string(backups.status().message()),
              HasSubstr("spec.sync.gated: needs spec.sync.backupWorkers 0, which is 1"));
}

class ModeSwitchTest : public testing::Test {
 protected:
  ModeSwitch::Orders Advance() { return switch_.Advance(now_, view_, true); }
  // Up to the targets of both workers.
  ModeSwitch::Orders BeginWith(uint64_t anns_step, uint64_t bobs_step) {
    switch_.Begin(now_, {.mode = SyncMode::kBounded, .staleness = 2});
    const ModeSwitch::Orders asked = Advance();
    round_ = asked.holds.front().second.round;
    switch_.OnHeld(kAnn, {.round = round_, .next_step = Step{anns_step}});
    switch_.OnHeld(kBob, {.round = round_, .next_step = Step{bobs_step}});
    return Advance();
  }
  void Drain(WorkerId worker, uint64_t step) {
    switch_.OnHeld(worker, {.round = round_, .next_step = Step{step}, .is_drained = true});
  }

  SteadyTime now_{};
  View view_ = ViewOf({kAnn, kBob}, SyncMode::kSync);
  ModeSwitch switch_{kPatience};
  uint64_t round_ = 0;
};

TEST_F(ModeSwitchTest, FromSyncAllStopBeforeTheFurthestStepThatHasBegun) {
  const ModeSwitch::Orders orders = BeginWith(7, 8);

  ASSERT_THAT(orders.holds, SizeIs(2));
  EXPECT_EQ(orders.holds[0].second.until, Step{8});
  EXPECT_EQ(orders.holds[1].second.until, Step{8});
}

TEST_F(ModeSwitchTest, FromAsyncEachStopsWhereItIs) {
  view_ = ViewOf({kAnn, kBob}, SyncMode::kAsync);

  const ModeSwitch::Orders orders = BeginWith(100, 500);

  ASSERT_THAT(orders.holds, SizeIs(2));
  EXPECT_EQ(orders.holds[0].second.until, Step{100});
  EXPECT_EQ(orders.holds[1].second.until, Step{500});
}

TEST_F(ModeSwitchTest, TheViewIsProposedOnceWhenNothingIsOnItsWay) {
  BeginWith(7, 8);
  Drain(kAnn, 8);
  EXPECT_FALSE(Advance().first_step.has_value());

  Drain(kBob, 8);

  EXPECT_EQ(Advance().first_step, Step{8});
  EXPECT_FALSE(Advance().first_step.has_value());
  EXPECT_TRUE(switch_.is_under_way());
}

TEST_F(ModeSwitchTest, ItIsOverWhenTheViewIsInForce) {
  BeginWith(7, 7);
  Drain(kAnn, 7);
  Drain(kBob, 7);
  Advance();

  view_.consistency = {.mode = SyncMode::kBounded, .staleness = 2, .from_step = Step{7}};
  Advance();

  EXPECT_FALSE(switch_.is_under_way());
  EXPECT_EQ(switch_.problem(), "");
}

TEST_F(ModeSwitchTest, WhoDiesOrLeavesIsNotWaitedFor) {
  BeginWith(7, 7);
  Drain(kAnn, 7);

  view_ = ViewOf({kAnn}, SyncMode::kSync);

  EXPECT_EQ(Advance().first_step, Step{7});
}

TEST_F(ModeSwitchTest, ItWaitsForAViewThatIsBeingAgreedOn) {
  switch_.Begin(now_, {.mode = SyncMode::kAsync});

  EXPECT_THAT(switch_.Advance(now_, view_, false).holds, IsEmpty());
  EXPECT_THAT(switch_.Advance(now_, view_, true).holds, SizeIs(2));
}

TEST_F(ModeSwitchTest, AWordOfAnEarlierAttemptDoesNotCount) {
  BeginWith(7, 7);

  switch_.OnHeld(kAnn, {.round = round_ - 1, .next_step = Step{7}, .is_drained = true});
  Drain(kBob, 7);

  EXPECT_FALSE(Advance().first_step.has_value());
}

TEST_F(ModeSwitchTest, AfterAWhileAllGoOnAsBeforeAndWhoIsLateIsNamed) {
  BeginWith(7, 8);
  Drain(kAnn, 8);

  now_ += kPatience;
  const ModeSwitch::Orders orders = Advance();

  EXPECT_THAT(orders.resumes, SizeIs(2));
  EXPECT_FALSE(switch_.is_under_way());
  EXPECT_THAT(switch_.problem(), HasSubstr("stays Sync"));
  EXPECT_THAT(switch_.problem(), HasSubstr("worker-1"));
}

}  // namespace
}  // namespace pushpull
