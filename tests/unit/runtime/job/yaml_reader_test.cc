// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/yaml_reader.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// The tree as JSON; the problems where there are some.
std::string Read(absl::string_view text) {
  Problems problems;
  const std::optional<Tree> tree = ReadYaml(text, problems);
  if (problems.empty()) return ToJson(tree.value());
  std::string lines;
  for (const ManifestProblem& problem : problems.Take()) {
    absl::StrAppend(&lines, ToString(problem), "\n");
  }
  return lines;
}

TEST(ReadYamlTest, ReadsEveryKindOfValue) {
  EXPECT_EQ(Read("a: 1\nb: [x, 1.5, true, null]\nc:\n  d: 'yes'\n"),
            R"({"a":1,"b":["x",1.5,true,null],"c":{"d":"yes"}})");
}

TEST(ReadYamlTest, QuotesAndTagsMakeStrings) {
  EXPECT_EQ(Read("[\"1\", '2', !!str 3, \"\", 4]"), R"(["1","2","3","",4])");
  EXPECT_EQ(Read("a: >-\n  5\nb: |-\n  6\n"), R"({"a":"5","b":"6"})");
}

TEST(ReadYamlTest, ReadsJson) {
  EXPECT_EQ(Read("{\"a\": [1, -2.5e3, \"\\u00e9\\n\"],\n\t\"b\": {}}"),
            "{\"a\":[1,-2500.0,\"\u00e9\\n\"],\"b\":{}}");
}

TEST(ReadYamlTest, AnAliasIsACopy) {
  EXPECT_EQ(Read("a: &x {k: 1}\nb: *x\n"), R"({"a":{"k":1},"b":{"k":1}})");
}

TEST(ReadYamlTest, EmptyDocumentsAndByteOrderMarksDoNotCount) {
  EXPECT_EQ(Read(""), "null");
  EXPECT_EQ(Read("---\n"), "null");
  EXPECT_EQ(Read("\xEF\xBB\xBF---\na: 1\n---\n"), R"({"a":1})");
}

TEST(ReadYamlTest, ASecondDocumentIsRefusedWhereItStarts) {
  EXPECT_EQ(Read("a: 1\n---\nb: 2\n"),
            "line 2, column 1: another document starts here, only one is expected\n");
}

TEST(ReadYamlTest, AllDocumentsTogetherHaveABoundedNumberOfValues) {
  std::string text =
      "a: &a [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\n";
  absl::StrAppend(&text, "c: &c [*b, *b, *b, *b, *b, *b, *b, *b]\nd: [*c, *c, *c, *c, *c]\n---\n");
  Problems none;
  Problems problems;

  const auto few = ReadYamlDocuments(text, none);
  const auto many = ReadYamlDocuments(absl::StrCat(text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text,
                                                   text),
                                      problems);

  EXPECT_TRUE(few.has_value() && none.empty());
  EXPECT_FALSE(many.has_value());
  EXPECT_THAT(ToString(problems.Take().at(0)), HasSubstr("has more than 100000 values"));
}

TEST(ReadYamlTest, RefusesTextAboveTheLimitWithoutReadingIt) {
  const std::string text(kManifestBytesMax + 1, '[');

  EXPECT_THAT(Read(text), HasSubstr("is larger than 262144 bytes, has 262145"));
}

TEST(ReadYamlTest, TheLastAllowedLevelIsRead) {
  const std::string open(kManifestDepthMax, '[');
  const std::string close(kManifestDepthMax, ']');

  EXPECT_EQ(Read(open + close), open + close);
  EXPECT_THAT(Read("[" + open + close + "]"), HasSubstr("nested deeper than 64 levels"));
}

TEST(ReadYamlTest, AliasesDoNotNestDeeperThanWhatIsWritten) {
  const std::string open(40, '[');
  const std::string close(40, ']');

  EXPECT_THAT(Read(absl::StrCat("a: &a ", open, close, "\nb: ", open, "*a", close)),
              HasSubstr("nested deeper than 64 levels"));
}

TEST(ReadYamlTest, NestingWithoutEndIsRefused) {
  for (const char* step : {"[", "{a: ", "- ", "? ", "&a [", "!t ["}) {
    std::string text;
    while (text.size() < 100'000) text += step;
    EXPECT_THAT(Read(text), HasSubstr(":")) << step;
  }
}

TEST(ReadYamlTest, RefusesBytesThatAreNoUtf8) {
  for (const char* text : {"\x80",
                           "\xC0\xAF",
                           "\xE0\x80\x80",
                           "\xED\xA0\x80",
                           "\xF4\x90\x80\x80",
                           "\xF5\x80\x80\x80",
                           "\xE2\x82",
                           "\xFF\xFE"}) {
    EXPECT_EQ(Read(absl::StrCat("a: 1\nb: ", text)), "line 2, column 4: is not UTF-8 text\n");
  }
  EXPECT_EQ(Read("a: \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), "{\"a\":\"\u00e9\u20ac\U0001F600\"}");
}

TEST(ReadYamlTest, EveryKeyGivenTwiceIsAProblem) {
  EXPECT_EQ(Read("a: {b: 1, b: 2}\nc: 1\nc: 2\n"), "a.b: is given twice\nc: is given twice\n");
}

}  // namespace
}  // namespace pushpull
