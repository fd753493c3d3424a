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
  size_t rounds;
  // Those up to this many times as slow as the fastest stay for the next stage.
  double near;
};
constexpr std::array kStages = {Stage{.warm_up_rounds = 1, .rounds = 3, .near = 3},
                                Stage{.warm_up_rounds = 0, .rounds = 6, .near = 1.3},
                                Stage{.warm_up_rounds = 0, .rounds = 16, .near = 1}};

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

AlgorithmTrial::AlgorithmTrial(std::vector<Algorithm> candidates)
    : candidates_(std::move(candidates)) {
  PUSHPULL_CHECK(!candidates_.empty());
}

void AlgorithmTrial::Add(double seconds) {
  const bool warms_up = num_calls_ < kStages[stage_].warm_up_rounds * candidates_.size();
  ++num_calls_;
  if (!warms_up) seconds_.push_back(seconds);
}

std::span<double> AlgorithmTrial::due() {
  const bool is_due = !is_over() && seconds_.size() == kStages[stage_].rounds * candidates_.size();
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
  for (const Result& result : results_) {
    if (is_last && !candidates_.empty()) break;
    if (result.seconds <= near * results_.front().seconds) candidates_.push_back(result.algorithm);
  }
  num_calls_ = 0;
  seconds_.clear();
}

}  // namespace pushpull
