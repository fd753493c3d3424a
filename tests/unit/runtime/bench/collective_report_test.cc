// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/collective_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pushpull {
namespace {

using testing::HasSubstr;

TEST(CollectiveReportTest, JsonAndTextHaveTheFigures) {
  const CollectiveOptions options = {.ranks = 4, .channel = "tcp", .repeats = 1};
  const std::vector<CollectiveMeasurement> measured = {{.bytes = 4000,
                                                        .algorithm = Algorithm::kTree,
                                                        .seconds = {1e-5},
                                                        .bytes_sent = 8000,
                                                        .is_verified = true},
                                                       {.bytes = 8,
                                                        .algorithm = Algorithm::kAuto,
                                                        .used = Algorithm::kHost,
                                                        .seconds = {1e-6},
                                                        .is_verified = true}};

  const nlohmann::json json = nlohmann::json::parse(ToJson(options, measured));
  const std::string text = ToText(options, measured);

  EXPECT_EQ(json["collective"], "all-reduce");
  EXPECT_EQ(json["results"][0]["algorithm"], "tree");
  EXPECT_EQ(json["results"][1]["used"], "host");
  EXPECT_EQ(json["results"][0]["bytes_sent_per_rank"], 8000);
  EXPECT_DOUBLE_EQ(json["results"][0]["seconds"]["p50"], 1e-5);
  EXPECT_TRUE(json["verified"]);
  EXPECT_THAT(text, HasSubstr("over tcp, 4 ranks, 1 repeats: every element is right"));
  EXPECT_THAT(text, HasSubstr("4000  tree"));
  EXPECT_THAT(text, HasSubstr("8  auto: host"));
}

TEST(CollectiveReportTest, WrongElementsAreSaid) {
  const std::vector<CollectiveMeasurement> measured = {{.bytes = 4, .seconds = {1}}};

  EXPECT_THAT(ToText({}, measured), HasSubstr("ELEMENTS ARE WRONG"));
  EXPECT_FALSE(nlohmann::json::parse(ToJson({}, measured))["verified"]);
}

}  // namespace
}  // namespace pushpull
