// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/certificate_metrics.h"

namespace pushpull {

CertificateMetrics::CertificateMetrics(MetricsRegistry& registry)
    : expiry_(prometheus::BuildGauge()
                  .Name("pushpull_certificate_expiry_timestamp_seconds")
                  .Help("When the first certificate of the chain in use ends")
                  .Register(registry.registry())
                  .Add({})) {}

void CertificateMetrics::SetExpiry(std::chrono::system_clock::time_point expires_at) {
  expiry_.Set(std::chrono::duration<double>(expires_at.time_since_epoch()).count());
}

}  // namespace pushpull
