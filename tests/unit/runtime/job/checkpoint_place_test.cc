// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/checkpoint_place.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(CheckpointPlaceTest, AFileUriIsTheFolderItNames) {
  EXPECT_EQ(CheckpointRoot({.uri = "file:///var/run/"}, "/job").value(), "/var/run");
}

TEST(CheckpointPlaceTest, AClaimIsAPlaceInTheWorkdir) {
  EXPECT_EQ(CheckpointRoot({.claim = "models", .path = "/mnist"}, "/job").value(),
            "/job/claims/models/mnist");
  EXPECT_EQ(CheckpointRoot({.claim = "models"}, "/job").value(), "/job/claims/models");
}

TEST(CheckpointPlaceTest, AClaimThatNobodyMountedIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(CheckpointRoot({.claim = "models"}, "").status()));
}

TEST(CheckpointPlaceTest, EveryJobHasAFolderOfItsOwn) {
  EXPECT_EQ(JobCheckpoints("/var", {.name = "mnist", .namespace_name = "lab"}), "/var/lab/mnist");
  EXPECT_EQ(JobCheckpoints("/", {.name = "mnist", .namespace_name = "lab"}), "/lab/mnist");
}

TEST(CheckpointPlaceTest, WithoutANamespaceItIsDefault) {
  EXPECT_EQ(JobCheckpoints("/var", {.name = "mnist"}), "/var/default/mnist");
}

}  // namespace
}  // namespace pushpull
