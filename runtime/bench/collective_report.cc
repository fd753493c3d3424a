// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/collective_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include <nlohmann/json.hpp>

namespace pushpull {
namespace {

bool AreVerified(const std::vector<CollectiveMeasurement>& measured) {
  return std::all_of(measured.begin(), measured.end(), [](const CollectiveMeasurement& one) {
    return one.is_verified;
  });
}

// "tree", "auto: tree".
std::string NameIn(const CollectiveMeasurement& one) {
  const std::string name = ToString(one.algorithm);
  return one.algorithm == Algorithm::kAuto ? absl::StrCat(name, ": ", ToString(one.used)) : name;
}

}  // namespace

std::string ToJson(const CollectiveOptions& options,
                   const std::vector<CollectiveMeasurement>& measured) {
  // Ordered, so that keys appear as docs/interfaces.md lists them.
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const CollectiveMeasurement& one : measured) {
    const CollectiveFigures figures = FiguresOf(options, one);
    results.push_back({{"bytes", one.bytes},
                       {"algorithm", ToString(one.algorithm)},
                       {"used", ToString(one.used)},
                       {"seconds",
                        {{"p50", figures.p50_seconds},
                         {"least", figures.least_seconds},
                         {"p99", figures.p99_seconds}}},
                       {"bytes_per_second", figures.bytes_per_second},
                       {"bus_bytes_per_second", figures.bus_bytes_per_second},
                       {"bytes_sent_per_rank", one.bytes_sent},
                       {"verified", one.is_verified}});
  }
  const nlohmann::ordered_json json = {{"collective", ToString(options.collective)},
                                       {"channel", options.channel},
                                       {"ranks", options.ranks},
                                       {"repeats", options.repeats},
                                       {"results", results},
                                       {"verified", AreVerified(measured)}};
  return json.dump(2) + "\n";
}

std::string ToText(const CollectiveOptions& options,
                   const std::vector<CollectiveMeasurement>& measured) {
  std::string text =
      absl::StrFormat("%s of float32 over %s, %d ranks, %d repeats: %s\n\n",
                      ToString(options.collective),
                      options.channel,
                      options.ranks,
                      options.repeats,
                      AreVerified(measured) ? "every element is right" : "ELEMENTS ARE WRONG");
  absl::StrAppendFormat(&text,
                        "%12s  %-22s %12s %12s %10s %10s %8s\n",
                        "bytes",
                        "algorithm",
                        "p50 us",
                        "least us",
                        "GB/s",
                        "bus GB/s",
                        "sent");
  for (const CollectiveMeasurement& one : measured) {
    const CollectiveFigures figures = FiguresOf(options, one);
    absl::StrAppendFormat(&text,
                          "%12d  %-22s %12.1f %12.1f %10.3f %10.3f %8.3f\n",
                          one.bytes,
                          NameIn(one),
                          figures.p50_seconds * 1e6,
                          figures.least_seconds * 1e6,
                          figures.bytes_per_second / 1e9,
                          figures.bus_bytes_per_second / 1e9,
                          figures.sent_over_array);
  }
  text += "\nsent: bytes that the busiest rank sends, over those of the array\n";
  return text;
}

}  // namespace pushpull
