// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/job_state.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

TEST(CreationStateTest, ATermIsUnusedUntilItsPodIsRequested) {
  CreationState creation;

  creation.Begin(4);
  EXPECT_EQ(creation.unused_term(), 4);
  creation.OnCoordinatorRequest();
  EXPECT_EQ(creation.unused_term(), std::nullopt);
  creation.End(absl::UnavailableError("lost"), 4);

  EXPECT_EQ(creation.unused_term(), std::nullopt);
}

TEST(CreationStateTest, AForbiddenPodLeavesItsTermUnused) {
  CreationState creation;
  creation.Begin(4);
  creation.OnCoordinatorRequest();

  creation.End(absl::PermissionDeniedError("quota"), 4);

  EXPECT_EQ(creation.unused_term(), 4);
  ASSERT_TRUE(creation.obstacle().has_value());
  EXPECT_EQ(creation.obstacle()->reason, "Forbidden");
}

TEST(CreationStateTest, ARefusalStaysAndAnObstacleGoes) {
  CreationState creation;
  creation.End(absl::InvalidArgumentError("no such field"), 0);
  creation.End(absl::AlreadyExistsError("taken"), 0);
  EXPECT_EQ(creation.obstacle()->reason, "NameConflict");

  creation.End(absl::OkStatus(), 0);

  EXPECT_EQ(creation.obstacle(), std::nullopt);
  EXPECT_EQ(creation.refusal(), "no such field");
}

}  // namespace
}  // namespace pushpull_operator
