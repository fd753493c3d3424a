// SPDX-License-Identifier: Apache-2.0
//
// The formats in which series are served, and which of them a scraper wants.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace pushpull {

enum class MetricsFormat : uint8_t {
  kText,         // Prometheus text, version 0.0.4: all scrapers read it
  kOpenMetrics,  // OpenMetrics text, version 1.0.0: with exemplars
  kProtobuf,     // io.prometheus.client.MetricFamily, delimited: also with native histograms
};

// The format for a request's Accept header, as RFC 9110 section 12.5.1 defines it: the one with the
// highest q, the first of several; text if none of ours is named. Accepts any input.
MetricsFormat FormatFor(absl::string_view accept);

// For the answer's Content-Type header.
absl::string_view ContentType(MetricsFormat format);

}  // namespace pushpull
