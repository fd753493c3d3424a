// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/collective_summary.h"

#include <arpa/inet.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "runtime/base/status_macros.h"
#include "runtime/bench/sync_summary.h"
#include "runtime/bench/tensor_mix.h"

namespace pushpull {
namespace {

double BusFactor(Collective collective, uint32_t ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * others;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return others;
    case Collective::kBroadcast:
      break;
  }
  return 1;
}

}  // namespace

absl::StatusOr<std::vector<Algorithm>> ParseAlgorithms(absl::string_view text) {
  std::vector<Algorithm> algorithms;
  if (text == "all") {
    algorithms = AllAlgorithms();
    algorithms.push_back(Algorithm::kAuto);
    return algorithms;
  }
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    PUSHPULL_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(name));
    algorithms.push_back(algorithm);
  }
  return algorithms;
}

absl::StatusOr<std::vector<RankPlace>> ParsePlaces(absl::string_view text) {
  std::vector<RankPlace> places;
  if (text.empty()) return places;
  for (const absl::string_view one : absl::StrSplit(text, ',')) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(one, absl::MaxSplits('=', 1));
    in_addr parsed{};
    if (parts.first.empty() || inet_pton(AF_INET, parts.second.c_str(), &parsed) != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "must be network namespaces and IPv4 addresses, as ring0=10.0.0.1, has \"", one, "\""));
    }
    places.push_back({.network = parts.first, .address = parts.second});
  }
  return places;
}

absl::StatusOr<std::vector<uint64_t>> ParseByteList(absl::string_view text) {
  std::vector<uint64_t> list;
  for (const absl::string_view one : absl::StrSplit(text, ',')) {
    PUSHPULL_ASSIGN_OR_RETURN(const uint64_t bytes, ParseBytes(one));
    list.push_back(bytes);
  }
  return list;
}

CollectiveFigures FiguresOf(const CollectiveOptions& options,
                            const CollectiveMeasurement& measured) {
  CollectiveFigures figures = {.p50_seconds = QuantileOf(measured.seconds, 0.5),
                               .least_seconds = QuantileOf(measured.seconds, 0),
                               .p99_seconds = QuantileOf(measured.seconds, 0.99)};
  const auto bytes = static_cast<double>(measured.bytes);
  if (figures.p50_seconds > 0) figures.bytes_per_second = bytes / figures.p50_seconds;
  figures.bus_bytes_per_second =
      figures.bytes_per_second * BusFactor(options.collective, options.ranks);
  if (measured.bytes > 0)
    figures.sent_over_array = static_cast<double>(measured.bytes_sent) / bytes;
  return figures;
}

}  // namespace pushpull
