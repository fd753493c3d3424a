// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/metrics_format.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace pushpull {
namespace {

// One element of the header: `type;parameter=value;...`.
struct MediaRange {
  std::string type;
  std::map<std::string, std::string> parameters;

  bool Has(const char* name, absl::string_view value) const {
    const auto found = parameters.find(name);
    return found != parameters.end() && found->second == value;
  }
  // 0: not wanted. Neither is a format whose q is not a number.
  double quality() const {
    const auto q = parameters.find("q");
    double value = 0;
    if (q == parameters.end()) return 1;
    return absl::SimpleAtod(q->second, &value) && value > 0 ? value : 0;
  }
};

MediaRange ParseRange(absl::string_view text) {
  MediaRange range;
  for (const absl::string_view part : absl::StrSplit(text, ';')) {
    const std::string word = absl::AsciiStrToLower(absl::StripAsciiWhitespace(part));
    if (range.type.empty()) {
      range.type = word;
      continue;
    }
    const std::pair<std::string, std::string> named = absl::StrSplit(word, absl::MaxSplits('=', 1));
    range.parameters.insert(named);
  }
  return range;
}

std::optional<MetricsFormat> FormatOf(const MediaRange& range) {
  if (range.type == "application/openmetrics-text" && range.Has("version", "1.0.0"))
    return MetricsFormat::kOpenMetrics;
  if (range.type == "application/vnd.google.protobuf" &&
      range.Has("proto", "io.prometheus.client.metricfamily") && range.Has("encoding", "delimited"))
    return MetricsFormat::kProtobuf;
  if (range.type == "text/plain" || range.type == "text/*" || range.type == "*/*")
    return MetricsFormat::kText;
  return std::nullopt;
}

}  // namespace

MetricsFormat FormatFor(absl::string_view accept) {
  MetricsFormat best = MetricsFormat::kText;
  double best_quality = 0;
  for (const absl::string_view element : absl::StrSplit(accept, ',')) {
    const MediaRange range = ParseRange(element);
    const std::optional<MetricsFormat> format = FormatOf(range);
    if (!format || range.quality() <= best_quality) continue;
    best = *format;
    best_quality = range.quality();
  }
  return best;
}

absl::string_view ContentType(MetricsFormat format) {
  switch (format) {
    case MetricsFormat::kOpenMetrics:
      return "application/openmetrics-text; version=1.0.0; charset=utf-8";
    case MetricsFormat::kProtobuf:
      return "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
             "encoding=delimited";
    case MetricsFormat::kText:
      break;
  }
  return "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace pushpull
