// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/tree.h"

#include <string>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(TreeTest, FindsFieldsOfObjectsOnly) {
  Tree object = MakeTree(Tree::Kind::kObject);
  object.fields.push_back({.key = "a", .value = MakeTree(Tree::Kind::kString, "x")});

  ASSERT_NE(FindField(object, "a"), nullptr);
  EXPECT_EQ(FindField(object, "a")->text, "x");
  EXPECT_EQ(FindField(object, "b"), nullptr);
  EXPECT_EQ(FindField(MakeTree(Tree::Kind::kString, "a"), "a"), nullptr);
}

TEST(TreeTest, IsDescribedAsItWasWritten) {
  EXPECT_EQ(Describe(MakeTree(Tree::Kind::kString, "two")), "\"two\"");
  EXPECT_EQ(Describe(MakeTree(Tree::Kind::kNumber, "1.50")), "1.50");
  EXPECT_EQ(Describe(MakeTree(Tree::Kind::kBool, "yes")), "yes");
  EXPECT_EQ(Describe(MakeTree(Tree::Kind::kNull)), "null");
  EXPECT_EQ(Describe(MakeTree(Tree::Kind::kList)), "a list");
  EXPECT_EQ(Describe(MakeTree(Tree::Kind::kObject)), "an object");
}

TEST(TreeTest, BytesThatAreNoUtf8BecomeReplacementCharacters) {
  EXPECT_EQ(ToJson(MakeTree(Tree::Kind::kString, "a\xFF")), "\"a\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace pushpull
