// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/metrics_format.h"

#include <string>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

constexpr char kProtobufType[] =
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

TEST(MetricsFormatTest, WithoutAWishItIsText) {
  EXPECT_EQ(FormatFor(""), MetricsFormat::kText);
  EXPECT_EQ(FormatFor("*/*"), MetricsFormat::kText);
  EXPECT_EQ(FormatFor("text/html,application/xml;q=0.9,*/*;q=0.8"), MetricsFormat::kText);
}

// What Prometheus 2.42 sends, without and with --enable-feature=native-histograms.
TEST(MetricsFormatTest, PrometheusHasWhatItPrefers) {
  EXPECT_EQ(FormatFor("application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
                      "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
            MetricsFormat::kOpenMetrics);
  EXPECT_EQ(
      FormatFor(std::string(kProtobufType) +
                ",application/openmetrics-text;version=1.0.0;q=0.8,application/"
                "openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
      MetricsFormat::kProtobuf);
}

TEST(MetricsFormatTest, HighestQualityWinsThenTheFirst) {
  const std::string open = "application/openmetrics-text; version=1.0.0";
  EXPECT_EQ(FormatFor("text/plain;q=0.3, " + open + ";q=0.4"), MetricsFormat::kOpenMetrics);
  EXPECT_EQ(FormatFor("text/plain, " + open), MetricsFormat::kText);
  EXPECT_EQ(FormatFor(open + ";q=0, text/plain;q=0.1"), MetricsFormat::kText);
}

TEST(MetricsFormatTest, OtherVersionsAndEncodingsAreNotOurs) {
  EXPECT_EQ(FormatFor("application/openmetrics-text;version=2.0.0"), MetricsFormat::kText);
  EXPECT_EQ(FormatFor("application/openmetrics-text"), MetricsFormat::kText);
  EXPECT_EQ(FormatFor("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
                      "encoding=text"),
            MetricsFormat::kText);
}

TEST(MetricsFormatTest, NonsenseIsText) {
  for (const char* nonsense : {",", ";", "=;=,;", ";q=", "text/plain;q=x", "a/b;q=1e999", "q=1;;,"})
    EXPECT_EQ(FormatFor(nonsense), MetricsFormat::kText) << nonsense;
}

}  // namespace
}  // namespace pushpull
