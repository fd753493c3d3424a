// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/problems.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST(ProblemsTest, KeepsTheirOrder) {
  Problems problems;
  problems.Add("spec.b", "is wrong");
  problems.Add("spec.a", "is worse");

  EXPECT_THAT(
      problems.Take(),
      ElementsAre(ManifestProblem{"spec.b", "is wrong"}, ManifestProblem{"spec.a", "is worse"}));
  EXPECT_TRUE(problems.empty());
}

TEST(ProblemsTest, EveryOneIsAPrintableLine) {
  Problems problems;
  problems.Add("line\n1", "unknown escape character: \x04");

  EXPECT_EQ(ToString(problems.Take()[0]), "line?1: unknown escape character: ?");
}

TEST(ProblemsTest, BeyondTheLimitTheyAreOnlyCounted) {
  Problems problems;
  for (size_t i = 0; i < Problems::kMax + 5; ++i) problems.Add("a", "b");

  const std::vector<ManifestProblem> taken = problems.Take();

  ASSERT_THAT(taken, SizeIs(Problems::kMax + 1));
  EXPECT_EQ(ToString(taken.back()), "and 5 more problems");
}

TEST(ProblemsTest, AProblemCoversWhatIsInsideItsField) {
  Problems problems;
  problems.Add("spec.servers", "must be an object");

  EXPECT_TRUE(problems.Covers("spec.servers"));
  EXPECT_TRUE(problems.Covers("spec.servers.replicas"));
  EXPECT_TRUE(problems.Covers("spec.servers[0]"));
  EXPECT_FALSE(problems.Covers("spec"));
  EXPECT_FALSE(problems.Covers("spec.serversX"));
}

TEST(ProblemsTest, AProblemTouchesTheObjectsAroundIt) {
  Problems problems;
  problems.Add("spec.rules[0].action", "must be set");

  EXPECT_TRUE(problems.Touches("spec.rules[0]"));
  EXPECT_TRUE(problems.Touches("spec"));
  EXPECT_FALSE(problems.Touches("spec.rules[1]"));
}

TEST(ProblemsTest, AProblemOfTheWholeManifestCoversEverything) {
  Problems problems;
  problems.Add("", "is empty");

  EXPECT_TRUE(problems.Covers("metadata.name"));
}

TEST(JoinPathTest, QuotesKeysThatAreNoWords) {
  EXPECT_EQ(JoinPath("", "spec"), "spec");
  EXPECT_EQ(JoinPath("spec", "servers"), "spec.servers");
  EXPECT_EQ(JoinPath("spec.command", size_t{2}), "spec.command[2]");
  EXPECT_EQ(JoinPath("metadata.labels", "a.b/c"), "metadata.labels[\"a.b/c\"]");
  EXPECT_EQ(JoinPath("spec", ""), "spec[\"\"]");
}

TEST(QuotedTest, EscapesAndCuts) {
  EXPECT_EQ(Quoted("a\"b\n"), "\"a\\\"b\\n\"");
  EXPECT_EQ(Quoted(std::string(61, 'x')), "\"" + std::string(60, 'x') + "...\"");
  EXPECT_EQ(Quoted(absl::StrCat(std::string(59, 'x'), "\u00e9")),
            absl::StrCat("\"", std::string(59, 'x'), "...\""));
}

TEST(ClosestNameTest, FindsMisspellingsAndBeginnings) {
  const std::vector<absl::string_view> names{"replicas", "replication", "everySeconds", "path"};

  EXPECT_EQ(ClosestName("replica", names), "replicas");
  EXPECT_EQ(ClosestName("Replicas", names), "replicas");
  EXPECT_EQ(ClosestName("relpicas", names), "replicas");
  EXPECT_EQ(ClosestName("every", names), "everySeconds");
  EXPECT_EQ(ClosestName("pth", names), "path");
}

TEST(ClosestNameTest, FindsNothingWhereNothingIsClose) {
  const std::vector<absl::string_view> names{"replicas", "path"};

  EXPECT_EQ(ClosestName("memory", names), "");
  EXPECT_EQ(ClosestName("x", names), "");
  EXPECT_EQ(ClosestName("", names), "");
  EXPECT_EQ(ClosestName(std::string(1000, 'r'), names), "");
}

}  // namespace
}  // namespace pushpull
