// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/plain_scalar.h"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(ResolvePlainScalarTest, KnowsTheSpellingsOfNull) {
  for (const char* text : {"", "~", "null", "Null", "NULL"}) {
    EXPECT_EQ(ResolvePlainScalar(text).kind, Tree::Kind::kNull) << text;
  }
}

TEST(ResolvePlainScalarTest, KnowsTheBooleansOfYaml11) {
  for (const char* text : {"true", "True", "TRUE", "yes", "Yes", "on", "ON", "y", "Y"}) {
    const Tree tree = ResolvePlainScalar(text);
    EXPECT_EQ(tree.kind, Tree::Kind::kBool) << text;
    EXPECT_TRUE(tree.boolean) << text;
  }
  for (const char* text : {"false", "no", "NO", "off", "Off", "n"}) {
    const Tree tree = ResolvePlainScalar(text);
    EXPECT_EQ(tree.kind, Tree::Kind::kBool) << text;
    EXPECT_FALSE(tree.boolean) << text;
  }
}

TEST(ResolvePlainScalarTest, ReadsIntegersInEveryBase) {
  const auto integer = [](const char* text) {
    const Tree tree = ResolvePlainScalar(text);
    EXPECT_EQ(tree.kind, Tree::Kind::kInteger) << text;
    return tree.integer;
  };

  EXPECT_EQ(integer("0"), 0);
  EXPECT_EQ(integer("-17"), -17);
  EXPECT_EQ(integer("+4"), 4);
  EXPECT_EQ(integer("1_000"), 1000);
  EXPECT_EQ(integer("0x1F"), 31);
  EXPECT_EQ(integer("0b101"), 5);
  EXPECT_EQ(integer("0o17"), 15);
  EXPECT_EQ(integer("017"), 15);
  EXPECT_EQ(integer("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(integer("-9223372036854775808"), INT64_MIN);
}

TEST(ResolvePlainScalarTest, WhatPasses64BitsOrHasAFractionIsANumber) {
  const auto number = [](const char* text) {
    const Tree tree = ResolvePlainScalar(text);
    EXPECT_EQ(tree.kind, Tree::Kind::kNumber) << text;
    return tree.number;
  };

  EXPECT_EQ(number("1.5"), 1.5);
  EXPECT_EQ(number(".5"), 0.5);
  EXPECT_EQ(number("-1e3"), -1000);
  EXPECT_EQ(number("08"), 8);
  EXPECT_EQ(number("9223372036854775808"), 9223372036854775808.0);
}

TEST(ResolvePlainScalarTest, EverythingElseIsAString) {
  for (const char* text : {"tRue", "yEs", "nULL",  "1.2.3", "10m",        "0x",     "0xg",   "-",
                           "+",    ".",   "..",    "1-2",   "e5",         ".inf",   "-.inf", ".nan",
                           "inf",  "nan", "1e999", "_1",    "2026-01-02", "python3"}) {
    EXPECT_EQ(ResolvePlainScalar(text).kind, Tree::Kind::kString) << text;
  }
}

TEST(ResolvePlainScalarTest, KeepsHowItWasWritten) {
  EXPECT_EQ(ResolvePlainScalar("1.10").text, "1.10");
  EXPECT_EQ(ResolvePlainScalar("yes").text, "yes");
  EXPECT_EQ(ResolvePlainScalar(std::string(1000, '1')).kind, Tree::Kind::kString);
}

}  // namespace
}  // namespace pushpull
