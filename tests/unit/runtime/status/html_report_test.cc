// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/html_report.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/status/status_json.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json SomeReport() {
  const StatusHistory history(StatusHistory::Keeps::kAll);
  return {{"job", "j"},
          {"phase", "Succeeded"},
          {"failure", ""},
          {"steps", 3},
          {"training_seconds", 1.5},
          {"workers", 2},
          {"servers", 2},
          {"restarts", 0},
          {"throughput", {{"samples_per_second", 10.0}}},
          {"sync", {{"p50_seconds", 0.1}, {"p99_seconds", 0.2}}},
          {"bytes", {{"pushed", 1}, {"replicated", 0}}},
          {"final", {{"loss", 0.5}}},
          {"resizes", nlohmann::json::array()},
          {"losses", nlohmann::json::array()},
          {"history", PointsJson(history)},
          {"events", EventsJson(history)}};
}

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<std::string> html = HtmlReport(text);
  EXPECT_EQ(html.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(html.status().message());
}

TEST(HtmlReportTest, IsOneFileThatLoadsNothing) {
  const absl::StatusOr<std::string> html = HtmlReport(SomeReport().dump());

  ASSERT_TRUE(html.ok()) << html.status();
  EXPECT_THAT(*html, HasSubstr("default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(*html, Not(HasSubstr("unsafe-inline")));
  EXPECT_THAT(*html, Not(HasSubstr(" src=")));
  EXPECT_THAT(*html, Not(HasSubstr("<link")));
  EXPECT_THAT(*html, HasSubstr("Permission is hereby granted"));  // uPlot's licence
  EXPECT_THAT(*html, Not(HasSubstr("@SCRIPTS@")));
}

TEST(HtmlReportTest, ATextOfTheJobCannotLeaveItsPlace) {
  nlohmann::json report = SomeReport();
  report["failure"] = "</script><script>alert(1)</script>@SCRIPTS@";

  const absl::StatusOr<std::string> html = HtmlReport(report.dump());

  ASSERT_TRUE(html.ok()) << html.status();
  EXPECT_THAT(*html, Not(HasSubstr("<script>alert(1)")));
  EXPECT_THAT(*html, HasSubstr("\\u003c/script>\\u003cscript>alert(1)\\u003c/script>@SCRIPTS@"));
}

TEST(HtmlReportTest, KeysOfALaterVersionAreNoMistake) {
  nlohmann::json report = SomeReport();
  report["more"] = 1;

  EXPECT_TRUE(HtmlReport(report.dump()).ok());
}

TEST(HtmlReportTest, WhatIsNoReportIsNamed) {
  nlohmann::json short_list = SomeReport();
  short_list["history"]["phases"]["wait"].push_back(1);
  nlohmann::json without = SomeReport();
  without.erase("history");
  nlohmann::json other_type = SomeReport();
  other_type["steps"] = "3";

  EXPECT_EQ(ErrorOf("{"), "no JSON");
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(ErrorOf(without.dump()), HasSubstr("history/time is missing"));
  EXPECT_EQ(ErrorOf(other_type.dump()), "steps: must be a number, is string");
  EXPECT_THAT(ErrorOf(short_list.dump()), HasSubstr("history/phases/wait: must have as many"));
}

}  // namespace
}  // namespace pushpull
