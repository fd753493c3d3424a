// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/page_files.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Values of the attribute in a text of HTML.
std::set<std::string> Attributes(const std::string& html, const std::string& name) {
  std::set<std::string> values;
  const std::string begin = absl::StrCat(" ", name, "=\"");
  for (size_t at = html.find(begin); at != std::string::npos; at = html.find(begin, at + 1)) {
    const size_t from = at + begin.size();
    values.insert(html.substr(from, html.find('"', from) - from));
  }
  return values;
}

TEST(PageFilesTest, EverythingThatThePageLoadsIsServed) {
  const std::map<std::string, HttpResource> resources = PageResources();
  const std::string page = *resources.at("/").content().text;

  std::set<std::string> loaded = Attributes(page, "href");
  loaded.merge(Attributes(page, "src"));

  EXPECT_GE(loaded.size(), 6U);
  for (const std::string& name : loaded) EXPECT_TRUE(resources.contains("/" + name)) << name;
}

// What the policy forbids would be missing on the page without a word.
TEST(PageFilesTest, ThePageHasNothingInlineAndNothingFromElsewhere) {
  const std::string page = *PageResources().at("/").content().text;

  EXPECT_THAT(page, Not(HasSubstr("<style")));
  EXPECT_THAT(page, Not(HasSubstr(" style=")));
  EXPECT_THAT(page, Not(HasSubstr("<script>")));
  EXPECT_THAT(page, Not(HasSubstr(" onclick=")));
  EXPECT_THAT(page, Not(HasSubstr("://")));
}

TEST(PageFilesTest, TypesAreThoseOfTheFiles) {
  const std::map<std::string, HttpResource> resources = PageResources();

  EXPECT_EQ(resources.at("/page.css").content_type, "text/css; charset=utf-8");
  EXPECT_EQ(resources.at("/page.js").content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(resources.at("/icon.svg").content_type, "image/svg+xml");
}

TEST(PageFilesTest, AReportsFilesAreNotServed) {
  EXPECT_FALSE(PageResources().contains("/report.html"));
  EXPECT_THAT(std::string(PageFile("report.html").text), HasSubstr("@REPORT@"));
  EXPECT_EQ(PageFile("other.html").text, "");
}

TEST(PageFilesTest, TheLicenceOfTheChartLibraryGoesWithIt) {
  EXPECT_THAT(*PageResources().at("/uPlot-LICENSE.txt").content().text,
              HasSubstr("Permission is hereby granted"));
}

}  // namespace
}  // namespace pushpull
