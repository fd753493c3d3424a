// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/references.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

const std::map<std::string, std::string> kVariables = {
    {"LR", "0.25"}, {"A.b-c", "any name"}, {"LOOP", "$(LR) $$"}, {"EMPTY", ""}};

std::string Replace(const std::string& text) {
  return ReplaceReferences(text, kVariables);
}

TEST(ReferencesTest, NamesOfVariablesAreReplaced) {
  EXPECT_EQ(Replace("--lr=$(LR),$(LR)$(EMPTY)!"), "--lr=0.25,0.25!");
  EXPECT_EQ(Replace("$(A.b-c)"), "any name");
}

TEST(ReferencesTest, ValuesAreNotLookedThroughAgain) {
  EXPECT_EQ(Replace("$(LOOP)"), "$(LR) $$");
}

TEST(ReferencesTest, TwoDollarsAreOne) {
  EXPECT_EQ(Replace("$$(LR)"), "$(LR)");
  EXPECT_EQ(Replace("$$$(LR)"), "$0.25");
  EXPECT_EQ(Replace("$$$$(LR)"), "$$(LR)");
  EXPECT_EQ(Replace("kill $$"), "kill $");
}

// The table of Kubernetes' own tests has these.
TEST(ReferencesTest, WhatNamesNoVariableStays) {
  for (const char* text : {"$(NO_SUCH_NAME)",
                           "$()",
                           "$(lr)",
                           "$LR",
                           "${LR}",
                           "$",
                           "$(LR",
                           "(LR)",
                           "$(LR $(NO",
                           "$( LR)",
                           "$((1))",
                           ""})
    EXPECT_EQ(Replace(text), text);
  EXPECT_EQ(Replace("$(NO $(LR)"), "$(NO $(LR)");  // the name is "NO $(LR"
  EXPECT_EQ(Replace("$x$(LR)"), "$x0.25");
}

}  // namespace
}  // namespace pushpull
