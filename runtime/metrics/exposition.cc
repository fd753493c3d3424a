// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/exposition.h"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include <prometheus/client_metric.h>
#include <prometheus/metric_type.h>
#include <prometheus/text_serializer.h>

namespace pushpull {
namespace {

// --- Text ----------------------------------------------------------------------------------------

prometheus::MetricFamily ToFamily(const HistogramSeries& series) {
  prometheus::MetricFamily family{series.name, series.help, prometheus::MetricType::Histogram, {}};
  for (const HistogramState& state : series.states) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    for (const auto& [name, value] : state.labels) metric.label.push_back({name, value});
    metric.histogram.sample_count = state.count;
    metric.histogram.sample_sum = state.sum;
    for (size_t i = 0; i < series.bounds.size(); ++i)
      metric.histogram.bucket.push_back({state.cumulative[i], series.bounds[i]});
    metric.histogram.bucket.push_back({state.count, HUGE_VAL});
  }
  return family;
}

std::string ToText(const prometheus::MetricFamily& family) {
  return prometheus::TextSerializer().Serialize({family});
}

// --- OpenMetrics ---------------------------------------------------------------------------------

// The same lines except for the descriptions: they name a counter without its _total, and one with
// another name is of type unknown.
std::string ToOpenMetrics(const prometheus::MetricFamily& family) {
  std::string text = ToText(family);
  if (family.type != prometheus::MetricType::Counter) return text;
  absl::string_view values = text;
  while (absl::StartsWith(values, "#")) values.remove_prefix(values.find('\n') + 1);
  const absl::string_view name = absl::StripSuffix(family.name, "_total");
  const bool is_named = name != family.name;
  return absl::StrCat("# TYPE ",
                      name,
                      is_named ? " counter" : " unknown",
                      "\n# HELP ",
                      name,
                      " ",
                      family.help,
                      "\n",
                      values);
}

std::string ToOpenMetrics(const Exemplar& exemplar) {
  const double at = std::chrono::duration<double>(exemplar.time.time_since_epoch()).count();
  return absl::StrFormat(R"( # {trace_id="%d",step="%d"} %.17g %.3f)",
                         exemplar.trace,
                         exemplar.step,
                         exemplar.value,
                         at);
}

std::string ToOpenMetrics(const HistogramSeries& series) {
  const std::string text = ToText(ToFamily(series));
  const std::string bucket = absl::StrCat(series.name, "_bucket{");
  const size_t num_buckets = series.bounds.size() + 1;
  size_t num_seen = 0;
  std::string with_exemplars;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&with_exemplars, line);
    if (absl::StartsWith(line, bucket)) {
      const HistogramState& state = series.states[num_seen / num_buckets];
      if (const auto& exemplar = state.exemplars[num_seen % num_buckets])
        absl::StrAppend(&with_exemplars, ToOpenMetrics(*exemplar));
      ++num_seen;
    }
    absl::StrAppend(&with_exemplars, "\n");
  }
  return with_exemplars;
}

}  // namespace

std::string Write(const Exposition& exposition, MetricsFormat format) {
  if (format == MetricsFormat::kProtobuf) return ToProtobuf(exposition);
  const bool is_open = format == MetricsFormat::kOpenMetrics;
  std::string text;
  for (const prometheus::MetricFamily& family : exposition.families)
    text += is_open ? ToOpenMetrics(family) : ToText(family);
  for (const HistogramSeries& series : exposition.histograms)
    text += is_open ? ToOpenMetrics(series) : ToText(ToFamily(series));
  if (is_open) text += "# EOF\n";
  return text;
}

}  // namespace pushpull
