// SPDX-License-Identifier: Apache-2.0
//
// The metrics of one node: an owner of a prometheus::Registry that can write itself as text. The
// families live with the code that knows them, in the *_metrics.cc files of the roles; serving the
// text over HTTP is http_exposer.h's part.
#pragma once

#include <memory>
#include <string>

#include <prometheus/registry.h>

namespace pushpull {

// One object a node, so that ten nodes in a process do not share series. Thread-safe.
class MetricsRegistry {
 public:
  MetricsRegistry() : registry_(std::make_shared<prometheus::Registry>()) {}

  // To build families on. A family lives as long as this object.
  prometheus::Registry& registry() { return *registry_; }

  // All series in the Prometheus text format, version 0.0.4. Takes the locks of the families, one
  // after the other; cost is linear in the number of series.
  std::string Text() const;

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
};

}  // namespace pushpull
