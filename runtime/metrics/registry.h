// SPDX-License-Identifier: Apache-2.0
//
// The metrics of one node: owns its series and writes them for a scraper. The families are defined
// in the *_metrics.cc files of the roles; http_exposer.h serves the result.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include <prometheus/registry.h>

#include "runtime/base/mutex.h"
#include "runtime/metrics/histogram.h"
#include "runtime/metrics/metrics_format.h"

namespace pushpull {

// One object per node, so that several nodes in one process (tests) share no series. Thread-safe.
class MetricsRegistry {
 public:
  MetricsRegistry() : registry_(std::make_shared<prometheus::Registry>()) {}

  // For building families of counters and gauges. A family lives as long as this object.
  prometheus::Registry& registry() { return *registry_; }

  // A new family without series, which lives as long as this object. `bounds` must ascend.
  HistogramFamily& AddHistogram(std::string name, std::string help, std::vector<double> bounds);

  // All series. Takes the locks of the families one by one; the cost is linear in the number of
  // series.
  std::string Text(MetricsFormat format = MetricsFormat::kText) const;

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
  mutable Mutex lock_;
  std::deque<HistogramFamily> histograms_ ABSL_GUARDED_BY(lock_);
};

}  // namespace pushpull
