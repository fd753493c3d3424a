// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(BenchReportTest, JsonHasTheKeysOfTheInterface) {
  const nlohmann::json json =
      nlohmann::json::parse(ToJson({.has_payload_checksum = true}, {.p50_seconds = 0.25}, true));

  for (const char* key : {"channel",
                          "workers",
                          "servers",
                          "bytes",
                          "steps",
                          "goodput_bytes_per_second",
                          "wire_bytes_per_step",
                          "link_bytes_per_second",
                          "link_cpu_seconds_per_gigabyte",
                          "wire_over_link",
                          "cpu_seconds_per_gigabyte",
                          "cpu_over_link",
                          "messages_per_second"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["step_seconds"]["p50"], 0.25);
  EXPECT_TRUE(json["step_seconds"].contains("p99"));
  EXPECT_TRUE(json["step_seconds"].contains("mad"));
  EXPECT_EQ(json["payload_checksum"], true);
  EXPECT_EQ(json["verified"], true);
  EXPECT_EQ(json["registered"], false);
  EXPECT_FALSE(json.contains("round_trip_seconds"));
}

TEST(BenchReportTest, ARoundTripIsToldWhereItWasMeasured) {
  const SyncSummary summary{.p50_seconds = 50e-6, .round_trip_seconds = 20e-6};

  EXPECT_EQ(nlohmann::json::parse(ToJson({}, summary, true))["round_trip_seconds"], 20e-6);
  EXPECT_THAT(ToText({}, summary, true), HasSubstr("the step is 2.50 of it"));
  EXPECT_THAT(ToText({}, {}, true), Not(HasSubstr("round trip")));
}

TEST(BenchReportTest, WrongSumsCannotBeOverlooked) {
  EXPECT_THAT(ToText({}, {}, false), HasSubstr("SUMS ARE WRONG"));
  EXPECT_EQ(nlohmann::json::parse(ToJson({}, {}, false))["verified"], false);
}

}  // namespace
}  // namespace pushpull
