// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/enum_names.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(EnumNamesTest, TheLastValueHasTheLastName) {
  EXPECT_EQ(NameOf(JobRole::kCoordinator), "Coordinator");
  EXPECT_EQ(NameOf(SyncMode::kAllReduce), "AllReduce");
  EXPECT_EQ(NameOf(JobPhase::kRecovering), "Recovering");
  EXPECT_EQ(NameOf(LocalReduce::kRack), "Rack");
  EXPECT_EQ(NameOf(NonFinitePolicy::kDrop), "Drop");
  EXPECT_EQ(NameOf(StallPolicy::kFail), "Fail");
  EXPECT_EQ(NameOf(DrainTimeoutPolicy::kForce), "Force");
  EXPECT_EQ(NameOf(RestartAction::kIgnore), "Ignore");
  EXPECT_EQ(NameOf(SuccessPolicy::kWorker0), "Worker0");
  EXPECT_EQ(NameOf(ExitReason::kError), "Error");
  EXPECT_EQ(NameOf(CleanupPolicy::kNone), "None");
  EXPECT_EQ(NameOf(TlsMode::kOff), "Off");
  EXPECT_EQ(NameOf(NetworkPolicy::kOff), "Off");
}

TEST(EnumNamesTest, WhatIsOnTheWireIsNumberedFromOne) {
  EXPECT_EQ(ValueOf<SyncMode>("Sync"), SyncMode::kSync);
  EXPECT_EQ(NameOf(SyncMode::kSync), "Sync");
  EXPECT_EQ(NameOf(SyncMode{0}), "?");
  EXPECT_EQ(NameOf(SyncMode{5}), "?");
  EXPECT_EQ(NameOf(JobPhase::kStarting), "Starting");
  EXPECT_FALSE(IsKnown(JobPhase{0}));
}

}  // namespace
}  // namespace pushpull
