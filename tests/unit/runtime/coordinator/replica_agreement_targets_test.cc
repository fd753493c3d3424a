// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include <gtest/gtest.h>

#include "runtime/coordinator/replica_agreement.h"
#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

TEST(ReplicaTargetsTest, OnlyPresentServersOfTheTargetCount) {
  ReplicaTargets targets;
  for (const ServerId server : {kA, kB}) targets.Add(server, 1);
  EXPECT_EQ(targets.Servers().size(), 2U);

  targets.Set({kB, kC});

  ASSERT_EQ(targets.Servers().size(), 1U);
  EXPECT_EQ(targets.Servers().front().server, kB);
}

TEST(ReplicaTargetsTest, AServerWithoutWeightHoldsNothing) {
  ReplicaTargets targets;
  targets.Add(kA, std::numeric_limits<double>::quiet_NaN());
  targets.Add(kB, 0);

  EXPECT_TRUE(targets.IsPresent(kA));
  EXPECT_TRUE(targets.Servers().empty());
}

TEST(ReplicaTargetsTest, FollowersNeedServersBesideThePrimary) {
  ReplicaTargets targets;
  EXPECT_EQ(targets.NumFollowers(2), 0U);

  targets.Set({kA, kB});
  EXPECT_EQ(targets.NumFollowers(2), 1U);
  targets.Set({kA, kB, kC});
  EXPECT_EQ(targets.NumFollowers(2), 2U);
  targets.Add(kC, 0);
  EXPECT_EQ(targets.NumFollowers(2), 1U);
}

TEST(CopySlotsTest, SlotsOfBothEndsAreTakenAndGivenBack) {
  CopySlots slots(1);
  const ReplicaSet entry{{Term{1}, 1}, kA, {}, {kB}};
  slots.Take(entry);
  EXPECT_FALSE(slots.IsFree(kA));
  EXPECT_FALSE(slots.IsFree(kB));
  EXPECT_TRUE(slots.IsFree(kC));
  EXPECT_FALSE(slots.TakeFreed());

  slots.Give(entry);

  EXPECT_TRUE(slots.IsFree(kA));
  EXPECT_TRUE(slots.TakeFreed());
  EXPECT_FALSE(slots.TakeFreed());
}

TEST(CopySlotsTest, AnEntryWithoutPrimaryCopiesNothing) {
  CopySlots slots(1);

  slots.Take({{Term{1}, 1}, std::nullopt, {kA}, {kB}});

  EXPECT_TRUE(slots.IsFree(kB));
}

}  // namespace
}  // namespace pushpull
