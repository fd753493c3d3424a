// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/algorithm_race.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr Collective kRaced[] = {Collective::kAllReduce,
                                 Collective::kReduceScatter,
                                 Collective::kAllGather,
                                 Collective::kBroadcast};

// An algorithm that takes this many times as long as the fastest is not tried with more bytes.
constexpr double kFarBehind = 3;

// Calls are repeated until they have moved this many bytes, so that a measurement takes long
// enough, but at most kCallsMax times.
constexpr uint64_t kBytesOfRound = 256 << 10;
constexpr uint64_t kCallsMax = 32;

class AlgorithmRace {
 public:
  AlgorithmRace(Communicator& ranks, const RaceOptions& options, Deadline deadline)
      : ranks_(ranks), options_(options), deadline_(deadline), memory_(options.memory) {
    if (!memory_.empty()) return;
    private_.resize(options.bytes_max);
    memory_ = private_;
  }

  absl::Status Run() {
    AlgorithmTable table = ranks_.table();
    for (const Collective collective : kRaced) {
      std::vector<Algorithm> candidates = AllAlgorithms();
      Algorithm fastest = Algorithm::kRing;
      for (size_t i = 0; i < kMeasuredBytes.size(); ++i) {
        if (kMeasuredBytes[i] <= options_.bytes_max) {
          values_ = memory_.first(kMeasuredBytes[i]);
          std::fill(values_.begin(), values_.end(), std::byte{0});
          PUSHPULL_ASSIGN_OR_RETURN(const Race race, Measure(collective, candidates));
          fastest = FastestOf(race);
          candidates = WorthMeasuring(race, kFarBehind);
        }
        table.Set(collective, i, fastest);
      }
    }
    ranks_.UseTable(table);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Race> Measure(Collective collective, const std::vector<Algorithm>& candidates) {
    Race race = {.measured = candidates};
    std::vector<std::vector<double>> seconds(candidates.size());
    // In turns, so that a disturbance of the machine affects all algorithms.
    for (uint32_t round = 0; round <= options_.rounds; ++round) {
      for (size_t i = 0; i < candidates.size(); ++i) {
        PUSHPULL_ASSIGN_OR_RETURN(const double one, SecondsOf(collective, candidates[i]));
        if (round > 0) seconds[i].push_back(one);  // the first one warms up
      }
    }
    for (std::vector<double>& of_one : seconds) {
      const auto middle = of_one.begin() + static_cast<ptrdiff_t>(of_one.size() / 2);
      std::nth_element(of_one.begin(), middle, of_one.end());
      race.seconds.push_back(*middle);
    }
    // All ranks get the same numbers, and so decide alike.
    PUSHPULL_RETURN_IF_ERROR(ranks_.AllReduce(std::as_writable_bytes(std::span(race.seconds)),
                                              ReductionOp(ElementKind::kFloat64, ElementOp::kMax),
                                              Algorithm::kTree,
                                              deadline_));
    return race;
  }

  absl::StatusOr<double> SecondsOf(Collective collective, Algorithm algorithm) {
    const uint64_t calls = std::clamp<uint64_t>(kBytesOfRound / values_.size(), 1, kCallsMax);
    const SteadyTime begin = std::chrono::steady_clock::now();
    for (uint64_t i = 0; i < calls; ++i) PUSHPULL_RETURN_IF_ERROR(Call(collective, algorithm));
    return ToSeconds(std::chrono::steady_clock::now() - begin) / static_cast<double>(calls);
  }

  absl::Status Call(Collective collective, Algorithm algorithm) {
    switch (collective) {
      case Collective::kAllReduce:
        return ranks_.AllReduce(values_, max_, algorithm, deadline_);
      case Collective::kReduceScatter:
        return ranks_.ReduceScatter(values_, max_, algorithm, deadline_).status();
      case Collective::kAllGather:
        return ranks_.AllGather(values_, sizeof(float), algorithm, deadline_);
      case Collective::kBroadcast:
        return ranks_.Broadcast(values_, 0, algorithm, deadline_);
    }
    return absl::OkStatus();
  }

  Communicator& ranks_;
  const RaceOptions options_;
  const Deadline deadline_;
  // As fast as a sum, but leaves the values unchanged.
  const ReductionOp max_ = ReductionOp(ElementKind::kFloat32, ElementOp::kMax);
  std::vector<std::byte> private_;
  std::span<std::byte> memory_;
  std::span<std::byte> values_;  // those that are measured, float32
};

}  // namespace

absl::Status RaceAlgorithms(Communicator& ranks, const RaceOptions& options, Deadline deadline) {
  return AlgorithmRace(ranks, options, deadline).Run();
}

}  // namespace pushpull
