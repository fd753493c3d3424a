// SPDX-License-Identifier: Apache-2.0
//
// All series of a node as the bytes that a scraper reads. Pure.
#pragma once

#include <string>
#include <vector>

#include <prometheus/metric_family.h>

#include "runtime/metrics/histogram.h"
#include "runtime/metrics/metrics_format.h"

namespace pushpull {

// The series of one histogram name.
struct HistogramSeries {
  std::string name;
  std::string help;
  std::vector<double> bounds;
  std::vector<HistogramState> states;
};

struct Exposition {
  std::vector<prometheus::MetricFamily> families;  // counters and gauges
  std::vector<HistogramSeries> histograms;
};

// Cost is linear in the number of series. Exemplars carry the labels `trace_id` and `step`.
std::string Write(const Exposition& exposition, MetricsFormat format);

// Write for kProtobuf: each message follows its length as a varint. Defined in exposition_proto.cc
// because of the headers that it needs.
std::string ToProtobuf(const Exposition& exposition);

}  // namespace pushpull
