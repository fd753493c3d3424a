// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/override.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

#include "runtime/job/yaml_reader.h"

namespace pushpull {
namespace {

// The tree after the override, as JSON; the problems where there are some.
std::string Apply(absl::string_view root_text, absl::string_view assignment) {
  Problems problems;
  Tree root = ReadYaml(root_text, problems).value();
  ApplyOverride(assignment, root, problems);
  if (problems.empty()) return ToJson(root);
  std::string lines;
  for (const ManifestProblem& problem : problems.Take()) {
    absl::StrAppend(&lines, ToString(problem), "\n");
  }
  return lines;
}

TEST(ApplyOverrideTest, ReplacesAValue) {
  EXPECT_EQ(Apply("{spec: {servers: {replicas: 2, threads: 1}}}", "spec.servers.replicas=4"),
            R"({"spec":{"servers":{"replicas":4,"threads":1}}})");
}

TEST(ApplyOverrideTest, CreatesWhatIsMissingOnTheWay) {
  EXPECT_EQ(Apply("", "spec.sync.mode=Async"), R"({"spec":{"sync":{"mode":"Async"}}})");
  EXPECT_EQ(Apply("{spec: }", "spec.env[0].name=A"), R"({"spec":{"env":[{"name":"A"}]}})");
}

TEST(ApplyOverrideTest, TheValueIsYaml) {
  EXPECT_EQ(Apply("", R"(a=["python3", "train.py"])"), R"({"a":["python3","train.py"]})");
  EXPECT_EQ(Apply("", R"(a="4")"), R"({"a":"4"})");
  EXPECT_EQ(Apply("", "a={b: true}"), R"({"a":{"b":true}})");
  EXPECT_EQ(Apply("", "a=b=c"), R"({"a":"b=c"})");
  EXPECT_EQ(Apply("{a: 1}", "a="), R"({"a":null})");
}

TEST(ApplyOverrideTest, FindsAndAppendsPositionsOfLists) {
  EXPECT_EQ(Apply("{a: [{b: 1}, {b: 2}]}", "a[1].b=3"), R"({"a":[{"b":1},{"b":3}]})");
  EXPECT_EQ(Apply("{a: [1]}", "a[1]=2"), R"({"a":[1,2]})");
  EXPECT_EQ(Apply("{a: [[1]]}", "a[0][0]=2"), R"({"a":[[2]]})");
}

TEST(ApplyOverrideTest, NamesTheStepThatCannotBeTaken) {
  EXPECT_EQ(Apply("{a: [1]}", "a[2]=1"),
            "a[2]: cannot be set: the list has 1 items; [1] would append one\n");
  EXPECT_EQ(Apply("{a: 5}", "a.b.c=1"), "a.b.c: cannot be set: 5 has no field \"b\"\n");
  EXPECT_EQ(Apply("{a: {}}", "a[0]=1"), "a[0]: cannot be set: an object has no position 0\n");
  EXPECT_EQ(Apply("[]", "a=1"), "a: cannot be set: a list has no field \"a\"\n");
}

TEST(ApplyOverrideTest, RefusesWhatIsNoAssignment) {
  EXPECT_EQ(Apply("", "spec.suspend"), "--set: must be PATH=VALUE, is \"spec.suspend\"\n");
  for (const char* path : {"",
                           ".a",
                           "a.",
                           "a..b",
                           "[0]",
                           "a[",
                           "a[]",
                           "a[x]",
                           "a[-1]",
                           "a[0]b",
                           "a[99999999999999999999]"}) {
    EXPECT_EQ(
        Apply("", absl::StrCat(path, "=1")),
        absl::StrCat(
            "--set: must name a field such as spec.restart.rules[0].action, is \"", path, "\"\n"));
  }
}

TEST(ApplyOverrideTest, RefusesAPathDeeperThanAManifest) {
  std::string path = "a";
  for (size_t i = 0; i < kManifestDepthMax; ++i) path += "[0]";

  EXPECT_NE(Apply("", path + "=1").find("must name a field"), std::string::npos);
}

TEST(ApplyOverrideTest, AValueThatIsNoYamlIsNamedByItsPath) {
  EXPECT_EQ(
      Apply("", "spec.command=[a"),
      "spec.command: value of --set: line 1, column 1: not valid YAML: end of sequence flow not "
      "found\n");
}

}  // namespace
}  // namespace pushpull
