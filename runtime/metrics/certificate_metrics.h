// SPDX-License-Identifier: Apache-2.0
//
// When a process's certificates expire: the only series that exists only with TLS.
#pragma once

#include <chrono>

#include <prometheus/gauge.h>

#include "runtime/metrics/registry.h"

namespace pushpull {

// Thread-safe.
class CertificateMetrics {
 public:
  // Adds the family to `registry`, which outlives this object.
  explicit CertificateMetrics(MetricsRegistry& registry);

  // pushpull_certificate_expiry_timestamp_seconds: seconds since 1970.
  void SetExpiry(std::chrono::system_clock::time_point expires_at);

 private:
  prometheus::Gauge& expiry_;
};

}  // namespace pushpull
