// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/algorithm_trial.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/check.h"

namespace pushpull {
namespace {

struct Stage {
  size_t warm_up_rounds;
  size_t min_rounds;
  // Those up to this many times as slow as the fastest stay for the next stage.
  double near;
};
constexpr std::array kStages = {Stage{.warm_up_rounds = 1, .min_rounds = 3, .near = 4},
                                Stage{.warm_up_rounds = 0, .min_rounds = 6, .near = 1.5},
                                Stage{.warm_up_rounds = 0, .min_rounds = 16, .near = 1}};
// A stage has more rounds than it must while they end within this time, which is longer than a
// scheduler takes to move ranks that share cores.
constexpr double kShortStageSeconds = 0.1;
constexpr double kMaxRoundsFactor = 8;

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

size_t NumRounds(size_t least, double seconds_of_round) {
  const double min_rounds = static_cast<double>(least);
  return static_cast<size_t>(
      std::clamp(kShortStageSeconds / seconds_of_round, min_rounds, min_rounds * kMaxRoundsFactor));
}

}  // namespace

AlgorithmTrial::AlgorithmTrial(std::vector<Algorithm> candidates)
    : candidates_(std::move(candidates)), num_rounds_(kStages.front().min_rounds) {
  PUSHPULL_CHECK(!candidates_.empty());
}

void AlgorithmTrial::Add(double seconds) {
  const bool warms_up = num_calls_ < kStages[stage_].warm_up_rounds * candidates_.size();
  ++num_calls_;
  if (!warms_up) seconds_.push_back(seconds);
}

std::span<double> AlgorithmTrial::due() {
  const bool is_due = !is_over() && seconds_.size() == num_rounds_ * candidates_.size();
  return is_due ? std::span(seconds_) : std::span<double>();
}

void AlgorithmTrial::Conclude() {
  const size_t count = candidates_.size();
  results_.clear();
  for (size_t i = 0; i < count; ++i) {
    std::vector<double> own;
    for (size_t at = i; at < seconds_.size(); at += count) own.push_back(seconds_[at]);
    results_.push_back({.algorithm = candidates_[i], .seconds = MedianOf(std::move(own))});
  }
  std::stable_sort(results_.begin(), results_.end(), [](const Result& a, const Result& b) {
    return a.seconds < b.seconds;
  });
  const double near = kStages[stage_].near;
  const bool is_last = ++stage_ == kStages.size();
  candidates_.clear();
  double seconds_of_round = 0;
  for (const Result& result : results_) {
    if (is_last && !candidates_.empty()) break;
    if (result.seconds > near * results_.front().seconds) break;
    candidates_.push_back(result.algorithm);
    seconds_of_round += result.seconds;
  }
  if (!is_last) num_rounds_ = NumRounds(kStages[stage_].min_rounds, seconds_of_round);
  num_calls_ = 0;
  seconds_.clear();
}

}  // namespace pushpull
