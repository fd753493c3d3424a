// SPDX-License-Identifier: Apache-2.0
//
// The formats in which a scraper can have the series, and which of them it wants.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace pushpull {

enum class MetricsFormat : uint8_t {
  kText,         // Prometheus text, version 0.0.4: what everybody reads
  kOpenMetrics,  // OpenMetrics text, version 1.0.0: with exemplars
  kProtobuf,     // io.prometheus.client.MetricFamily, delimited: with native histograms, too
};

// By the value of a request's Accept header, as RFC 9110 section 12.5.1 defines it: the format with
// the highest q, the first of several. Without any of ours in it: text. Takes any input.
MetricsFormat FormatFor(absl::string_view accept);

// For the answer's Content-Type header.
absl::string_view ContentType(MetricsFormat format);

}  // namespace pushpull
