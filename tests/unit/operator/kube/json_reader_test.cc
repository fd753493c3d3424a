// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/json_reader.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Nested(int levels) {
  return std::string(static_cast<size_t>(levels), '[') +
         std::string(static_cast<size_t>(levels), ']');
}

std::string Repeated(const std::string& item, int count) {
  std::string text = "[" + item;
  for (int i = 1; i < count; ++i) text += "," + item;
  return text + "]";
}

size_t CountValues(const json& value) {
  size_t count = 1;
  if (!value.is_structured()) return count;
  for (const json& item : value) count += CountValues(item);
  return count;
}

TEST(ReadJsonTest, ReadsEveryKindOfValue) {
  const std::string text =
      R"({"a":[1,-2,2.5,true,false,null,"x",{},[]],"b":{"c":{"d":18446744073709551615}}})";

  const std::optional<ReadValue> read = ReadJson(text);

  ASSERT_TRUE(read);
  EXPECT_EQ(read->json, json::parse(text));
  EXPECT_EQ(read->problem, "");
}

TEST(ReadJsonTest, TextThatIsNotJsonIsNothing) {
  for (const char* text : {"", "nonsense", "{\"a\":", "[1]]", "{\"a\":1e999}", "\"\xff\""})
    EXPECT_FALSE(ReadJson(text)) << text;
}

TEST(ReadJsonTest, WhatIsTooDeepIsLeftOut) {
  const std::string text =
      R"({"metadata":{"name":"a"},"spec":{"workers":{"replicas":2,"template":)" + Nested(300) +
      R"(,"z":1}},"status":{"phase":"Running"}})";

  const std::optional<ReadValue> read = ReadJson(text);

  ASSERT_TRUE(read);
  EXPECT_EQ(read->problem, "spec.workers.template nests deeper than 200 levels");
  EXPECT_EQ(read->json["metadata"]["name"], "a");
  EXPECT_EQ(read->json["spec"]["workers"]["replicas"], 2);
  EXPECT_EQ(read->json["spec"]["workers"]["z"], 1);
  EXPECT_EQ(read->json["status"]["phase"], "Running");
}

TEST(ReadJsonTest, TheDeepestAllowedIsRead) {
  EXPECT_EQ(ReadJson(Nested(kJsonDepthMax))->problem, "");
  EXPECT_NE(ReadJson(Nested(kJsonDepthMax + 1))->problem, "");
}

TEST(ReadJsonTest, WhatIsTooMuchIsLeftOut) {
  for (const std::string& spec : {Repeated("{}", 500'000),
                                  Repeated("[[],[]]", 200'000),
                                  Repeated("1", 700'000),
                                  '"' + std::string(2'000'000, 'x') + '"'}) {
    const std::optional<ReadValue> read = ReadJson(R"({"metadata":{"name":"a"},"spec":{"x":)" +
                                                   spec + R"(},"status":{"phase":"Running"}})");

    ASSERT_TRUE(read);
    EXPECT_THAT(read->problem, HasSubstr("spec.x is larger than 1024 KiB"));
    EXPECT_LE(CountValues(read->json), 10 + kJsonCostMax / kJsonValueCost);
    EXPECT_LE(read->json.dump().size(), 2 * kJsonCostMax);
    EXPECT_EQ(read->json["metadata"]["name"], "a");
    EXPECT_EQ(read->json["status"]["phase"], "Running");
  }
}

TEST(ReadJsonTest, ManagedFieldsAreNotRead) {
  const std::optional<ReadValue> read =
      ReadJson(R"({"metadata":{"managedFields":)" + Repeated("{}", 200'000) + R"(,"name":"a"}})");

  ASSERT_TRUE(read);
  EXPECT_EQ(read->json, json::parse(R"({"metadata":{"name":"a"}})"));
  EXPECT_EQ(read->problem, "");
}

TEST(ReadEnvelopeTest, ItemsComeOneByOneAndTheRestIsReturned) {
  std::vector<std::string> items;

  const std::optional<json> rest = ReadEnvelope(
      R"({"kind":"List","items":[{"a":[{}]},7,[[1]],null],"metadata":{"items":[1],"continue":"c"}})",
      "items",
      Holds::kList,
      [&](const ReadValue& read) { items.push_back(read.json.dump()); });

  EXPECT_THAT(items, ElementsAre(R"({"a":[{}]})", "7", "[[1]]", "null"));
  ASSERT_TRUE(rest);
  EXPECT_EQ(*rest,
            json::parse(R"({"kind":"List","items":[],"metadata":{"items":[1],"continue":"c"}})"));
}

TEST(ReadEnvelopeTest, TheProblemOfOneItemIsNotThatOfTheNext) {
  std::vector<std::string> problems;

  const std::optional<json> rest =
      ReadEnvelope(R"({"items":[{"spec":)" + Nested(300) + R"(},{"spec":1},{"spec":")" +
                       std::string(2'000'000, 'x') + R"("},{}]})",
                   "items",
                   Holds::kList,
                   [&](const ReadValue& read) { problems.push_back(read.problem); });

  ASSERT_TRUE(rest);
  EXPECT_THAT(problems,
              ElementsAre(HasSubstr("spec nests deeper"), "", HasSubstr("spec is larger"), ""));
}

TEST(ReadEnvelopeTest, AListThatIsNoneIsPartOfTheRest) {
  for (const char* text : {R"({"items":null})", R"({"items":{"a":[1]}})", "[[1]]", "{}"}) {
    int count = 0;
    const std::optional<json> rest =
        ReadEnvelope(text, "items", Holds::kList, [&](const ReadValue&) { ++count; });

    ASSERT_TRUE(rest);
    EXPECT_EQ(*rest, json::parse(text));
    EXPECT_EQ(count, 0);
  }
}

TEST(ReadEnvelopeTest, AnObjectMayComeBeforeItsType) {
  std::vector<std::string> objects;

  const std::optional<json> rest =
      ReadEnvelope(R"({"object":{"object":{"x":1}},"type":"ADDED"})",
                   "object",
                   Holds::kObject,
                   [&](const ReadValue& read) { objects.push_back(read.json.dump()); });

  EXPECT_THAT(objects, ElementsAre(R"({"object":{"x":1}})"));
  EXPECT_EQ(rest, json::parse(R"({"type":"ADDED"})"));
}

}  // namespace
}  // namespace pushpull_operator
