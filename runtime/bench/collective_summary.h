// SPDX-License-Identifier: Apache-2.0
//
// What a benchmark of collectives between ranks has measured, and the figures that follow from it.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/collective/schedule.h"

namespace pushpull {

// Where a rank runs, and where others reach it.
struct RankPlace {
  std::string network;  // a network namespace, as ip-netns names it
  std::string address;  // IPv4
};

struct CollectiveOptions {
  uint32_t ranks = 2;
  std::vector<RankPlace> places = {};  // by rank, over tcp; empty: the loopback interface
  Collective collective = Collective::kAllReduce;
  std::vector<Algorithm> algorithms = {Algorithm::kAuto};
  std::vector<uint64_t> bytes = {160'000'000};  // of each rank's array
  std::string channel = "shm";
  bool has_private_arrays = false;  // over shm
  uint32_t repeats = 10;            // of each timed call
};

// "ring,tree", "auto", or "all" for every algorithm and auto. kInvalidArgument names what is not an
// algorithm.
absl::StatusOr<std::vector<Algorithm>> ParseAlgorithms(absl::string_view text);
// "ring0=10.0.0.1,ring1=10.0.0.2". kInvalidArgument quotes what is not a place.
absl::StatusOr<std::vector<RankPlace>> ParsePlaces(absl::string_view text);
// "160M", "4K,1Mi"; see ParseBytes.
absl::StatusOr<std::vector<uint64_t>> ParseByteList(absl::string_view text);

// One array size with one algorithm.
struct CollectiveMeasurement {
  uint64_t bytes = 0;
  Algorithm algorithm = Algorithm::kRing;
  Algorithm used = Algorithm::kRing;  // what kAuto has chosen, otherwise `algorithm`
  std::vector<double> seconds;        // of the slowest rank in each repeat
  uint64_t bytes_sent = 0;            // by the rank that sends most, in one call
  bool is_verified = false;           // every element of every call was right
};

struct CollectiveFigures {
  double p50_seconds = 0;
  double least_seconds = 0;
  double p99_seconds = 0;
  double bytes_per_second = 0;  // of the array, by the median time
  // The same, times what a ring sends per byte, so that numbers of ranks are comparable: the factor
  // is 2 (n - 1) / n for an all-reduce, (n - 1) / n for a reduce-scatter and an all-gather, 1 for a
  // broadcast.
  double bus_bytes_per_second = 0;
  double sent_over_array = 0;
};

CollectiveFigures FiguresOf(const CollectiveOptions& options,
                            const CollectiveMeasurement& measured);

}  // namespace pushpull
