// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/exposition.h"

#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <gtest/gtest.h>
#include <io/prometheus/client/metrics.pb.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

prometheus::MetricFamily Value(const char* name, prometheus::MetricType type, double value) {
  prometheus::MetricFamily family{name, "Help", type, {}};
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.label = {{"channel", "tcp"}};
  metric.counter.value = value;
  metric.gauge.value = value;
  return family;
}

// 0.5 in a trace, and 0.25 and 3 outside of one.
HistogramSeries Seconds() {
  Histogram histogram({0.25, 1});
  histogram.Observe(0.5, 7, 42);
  histogram.Observe(0.25);
  histogram.Observe(3);
  HistogramState state = histogram.State();
  state.labels = {{"phase", "wire"}};
  state.exemplars[1]->time = std::chrono::system_clock::time_point(std::chrono::milliseconds(1500));
  return {.name = "pushpull_seconds", .help = "Help", .bounds = {0.25, 1}, .states = {state}};
}

const Exposition& All() {
  static const Exposition all = {
      .families = {Value("pushpull_bytes_total", prometheus::MetricType::Counter, 2),
                   Value("pushpull_members", prometheus::MetricType::Gauge, 3)},
      .histograms = {Seconds()}};
  return all;
}

std::vector<io::prometheus::client::MetricFamily> Parse(const std::string& bytes) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  std::vector<io::prometheus::client::MetricFamily> families;
  bool is_end = false;
  while (!is_end) {
    families.emplace_back();
    if (!google::protobuf::util::ParseDelimitedFromZeroCopyStream(
            &families.back(), &stream, &is_end)) {
      EXPECT_TRUE(is_end);
      families.pop_back();
      break;
    }
  }
  return families;
}

TEST(ExpositionTest, TextHasNeitherExemplarsNorAnEnd) {
  EXPECT_EQ(Write(All(), MetricsFormat::kText),
            "# HELP pushpull_bytes_total Help\n"
            "# TYPE pushpull_bytes_total counter\n"
            "pushpull_bytes_total{channel=\"tcp\"} 2\n"
            "# HELP pushpull_members Help\n"
            "# TYPE pushpull_members gauge\n"
            "pushpull_members{channel=\"tcp\"} 3\n"
            "# HELP pushpull_seconds Help\n"
            "# TYPE pushpull_seconds histogram\n"
            "pushpull_seconds_count{phase=\"wire\"} 3\n"
            "pushpull_seconds_sum{phase=\"wire\"} 3.75\n"
            "pushpull_seconds_bucket{phase=\"wire\",le=\"0.25\"} 1\n"
            "pushpull_seconds_bucket{phase=\"wire\",le=\"1\"} 2\n"
            "pushpull_seconds_bucket{phase=\"wire\",le=\"+Inf\"} 3\n");
}

TEST(ExpositionTest, OpenMetricsDescribesACounterWithoutTotal) {
  const std::string text = Write(All(), MetricsFormat::kOpenMetrics);
  EXPECT_THAT(text, HasSubstr("# TYPE pushpull_bytes counter\n"));
  EXPECT_THAT(text, HasSubstr("\npushpull_bytes_total{channel=\"tcp\"} 2\n"));
  EXPECT_THAT(text, Not(HasSubstr("TYPE pushpull_bytes_total")));
  EXPECT_THAT(text, EndsWith("\n# EOF\n"));
}

TEST(ExpositionTest, OpenMetricsLeadsFromABucketToATrace) {
  EXPECT_THAT(Write(All(), MetricsFormat::kOpenMetrics),
              HasSubstr("pushpull_seconds_bucket{phase=\"wire\",le=\"0.25\"} 1\n"
                        "pushpull_seconds_bucket{phase=\"wire\",le=\"1\"} 2"
                        " # {trace_id=\"7\",step=\"42\"} 0.5 1.500\n"
                        "pushpull_seconds_bucket{phase=\"wire\",le=\"+Inf\"} 3\n"));
}

TEST(ExpositionTest, ProtobufHasBothSetsOfBuckets) {
  const auto families = Parse(Write(All(), MetricsFormat::kProtobuf));
  ASSERT_EQ(families.size(), 3);
  EXPECT_EQ(families[0].metric(0).counter().value(), 2);
  EXPECT_EQ(families[1].metric(0).gauge().value(), 3);
  EXPECT_EQ(families[1].metric(0).label(0).value(), "tcp");

  const auto& histogram = families[2].metric(0).histogram();
  EXPECT_EQ(histogram.sample_count(), 3);
  EXPECT_EQ(histogram.bucket(1).cumulative_count(), 2);
  EXPECT_EQ(histogram.bucket(1).exemplar().label(0).value(), "7");
  EXPECT_EQ(histogram.bucket(1).exemplar().timestamp().nanos(), 500'000'000);
  EXPECT_EQ(histogram.schema(), 3);
  // 0.25, 0.5 and 3 end or lie in the buckets -16, -8 and 13.
  ASSERT_EQ(histogram.positive_span_size(), 3);
  EXPECT_EQ(histogram.positive_span(0).offset(), -16);
  EXPECT_EQ(histogram.positive_span(1).offset(), 7);
  EXPECT_EQ(histogram.positive_span(2).offset(), 20);
  EXPECT_THAT(histogram.positive_delta(), ElementsAre(1, 0, 0));
}

TEST(ExpositionTest, NeighboursShareASpanAndDiffer) {
  Histogram histogram({1});
  for (const double value : {1.0, 1.05, 1.06, 1.07, 1.15}) histogram.Observe(value);
  const auto families = Parse(Write(
      {.families = {},
       .histograms = {{.name = "s", .help = "", .bounds = {1}, .states = {histogram.State()}}}},
      MetricsFormat::kProtobuf));

  const auto& proto = families.at(0).metric(0).histogram();
  ASSERT_EQ(proto.positive_span_size(), 1);
  EXPECT_EQ(proto.positive_span(0).offset(), 0);
  EXPECT_EQ(proto.positive_span(0).length(), 3);
  EXPECT_THAT(proto.positive_delta(), ElementsAre(1, 2, -2));
}

}  // namespace
}  // namespace pushpull
