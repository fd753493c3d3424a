// SPDX-License-Identifier: Apache-2.0
//
// The metrics of one node: owns a prometheus::Registry and writes it as text. The families are
// defined in the *_metrics.cc files of the roles; http_exposer.h serves the text.
#pragma once

#include <memory>
#include <string>

#include <prometheus/registry.h>

namespace pushpull {

// One object a node, so that several nodes in one process (tests) share no series. Thread-safe.
class MetricsRegistry {
 public:
  MetricsRegistry() : registry_(std::make_shared<prometheus::Registry>()) {}

  // For building families. A family lives as long as this object.
  prometheus::Registry& registry() { return *registry_; }

  // All series in the Prometheus text format, version 0.0.4. Takes the locks of the families, one
  // after the other; cost is linear in the number of series.
  std::string Text() const;

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
};

}  // namespace pushpull
