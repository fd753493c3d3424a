// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <io/prometheus/client/metrics.pb.h>
#include <prometheus/client_metric.h>
#include <prometheus/metric_type.h>

#include "runtime/metrics/exposition.h"

namespace pushpull {
namespace {

namespace proto = io::prometheus::client;

void AddLabel(proto::LabelPair& pair, const std::string& name, const std::string& value) {
  pair.set_name(name);
  pair.set_value(value);
}

void FillValue(const prometheus::ClientMetric& metric,
               prometheus::MetricType type,
               proto::Metric& out) {
  for (const auto& label : metric.label) AddLabel(*out.add_label(), label.name, label.value);
  if (type == prometheus::MetricType::Counter)
    out.mutable_counter()->set_value(metric.counter.value);
  else if (type == prometheus::MetricType::Gauge)
    out.mutable_gauge()->set_value(metric.gauge.value);
  else
    out.mutable_untyped()->set_value(metric.untyped.value);
}

proto::MetricType TypeOf(prometheus::MetricType type) {
  if (type == prometheus::MetricType::Counter) return proto::COUNTER;
  return type == prometheus::MetricType::Gauge ? proto::GAUGE : proto::UNTYPED;
}

proto::MetricFamily ToProto(const prometheus::MetricFamily& family) {
  proto::MetricFamily out;
  out.set_name(family.name);
  out.set_help(family.help);
  out.set_type(TypeOf(family.type));
  for (const prometheus::ClientMetric& metric : family.metric)
    FillValue(metric, family.type, *out.add_metric());
  return out;
}

void Fill(const Exemplar& exemplar, proto::Exemplar& out) {
  AddLabel(*out.add_label(), "trace_id", absl::StrCat(exemplar.trace));
  AddLabel(*out.add_label(), "step", absl::StrCat(exemplar.step));
  out.set_value(exemplar.value);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(exemplar.time);
  out.mutable_timestamp()->set_seconds(seconds.time_since_epoch().count());
  out.mutable_timestamp()->set_nanos(
      static_cast<int32_t>(std::chrono::nanoseconds(exemplar.time - seconds).count()));
}

// One span per run of buckets without a gap; each count is the difference from the previous one.
void Fill(const NativeBuckets& native, proto::Histogram& out) {
  out.set_schema(NativeBuckets::kSchema);
  out.set_zero_threshold(NativeBuckets::kZeroThreshold);
  out.set_zero_count(native.zeros);
  int next = 0;  // the index after the last span
  int64_t before = 0;
  for (const auto& [index, counted] : native.counts) {
    if (out.positive_span_size() == 0 || index != next) {
      proto::BucketSpan& span = *out.add_positive_span();
      span.set_offset(index - next);
      span.set_length(0);
    }
    proto::BucketSpan& span = *out.mutable_positive_span()->rbegin();
    span.set_length(span.length() + 1);
    const auto count = static_cast<int64_t>(counted);
    out.add_positive_delta(count - before);
    before = count;
    next = index + 1;
  }
}

proto::MetricFamily ToProto(const HistogramSeries& series) {
  proto::MetricFamily out;
  out.set_name(series.name);
  out.set_help(series.help);
  out.set_type(proto::HISTOGRAM);
  for (const HistogramState& state : series.states) {
    proto::Metric& metric = *out.add_metric();
    for (const auto& [name, value] : state.labels) AddLabel(*metric.add_label(), name, value);
    proto::Histogram& histogram = *metric.mutable_histogram();
    histogram.set_sample_count(state.count);
    histogram.set_sample_sum(state.sum);
    for (size_t i = 0; i <= series.bounds.size(); ++i) {
      proto::Bucket& bucket = *histogram.add_bucket();
      const bool is_last = i == series.bounds.size();
      bucket.set_cumulative_count(is_last ? state.count : state.cumulative[i]);
      bucket.set_upper_bound(is_last ? HUGE_VAL : series.bounds[i]);
      if (state.exemplars[i]) Fill(*state.exemplars[i], *bucket.mutable_exemplar());
    }
    Fill(state.native, histogram);
  }
  return out;
}

void Append(const proto::MetricFamily& family, std::string& bytes) {
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::util::SerializeDelimitedToZeroCopyStream(family, &stream);
}

}  // namespace

std::string ToProtobuf(const Exposition& exposition) {
  std::string bytes;
  for (const prometheus::MetricFamily& family : exposition.families) Append(ToProto(family), bytes);
  for (const HistogramSeries& series : exposition.histograms) Append(ToProto(series), bytes);
  return bytes;
}

}  // namespace pushpull
