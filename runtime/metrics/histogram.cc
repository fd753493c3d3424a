// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/histogram.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pushpull {
namespace {

constexpr int kPerOctave = 1 << NativeBuckets::kSchema;

// The upper bounds of the buckets between 0.5 and 1 (exclusive), the range to which numbers are
// scaled.
const std::array<double, kPerOctave>& Fractions() {
  static const std::array<double, kPerOctave> fractions = [] {
    std::array<double, kPerOctave> made{};
    for (int i = 0; i < kPerOctave; ++i)
      made[static_cast<size_t>(i)] = std::exp2(static_cast<double>(i) / kPerOctave - 1);
    return made;
  }();
  return fractions;
}

}  // namespace

int NativeBuckets::IndexOf(double value) {
  if (std::isinf(value)) return kLast;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  const auto bound = std::lower_bound(Fractions().begin(), Fractions().end(), fraction);
  const auto index = static_cast<int>(bound - Fractions().begin()) + (exponent - 1) * kPerOctave;
  return std::min(index, kLast);
}

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1), exemplars_(bounds_.size() + 1) {}

size_t Histogram::BucketOf(double value) const {
  return static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) -
                             bounds_.begin());
}

void Histogram::Observe(double value) {
  if (std::isnan(value)) return;
  sum_.fetch_add(value, std::memory_order_relaxed);
  auto& native =
      value <= NativeBuckets::kZeroThreshold
          ? zeros_
          : native_[static_cast<size_t>(NativeBuckets::IndexOf(value) - NativeBuckets::kFirst)];
  native.fetch_add(1, std::memory_order_relaxed);
  // Last: a reader that loads these first also finds each observation in the native buckets.
  counts_[BucketOf(value)].fetch_add(1, std::memory_order_release);
}

void Histogram::Observe(double value, uint64_t trace, uint64_t step) {
  if (std::isnan(value)) return;
  Observe(value);
  const MutexLock lock(exemplars_lock_);
  exemplars_[BucketOf(value)] = {
      .trace = trace, .step = step, .value = value, .time = std::chrono::system_clock::now()};
}

HistogramState Histogram::State() const {
  HistogramState state;
  uint64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i].load(std::memory_order_acquire);
    if (i < bounds_.size()) state.cumulative.push_back(below);
  }
  state.native.zeros = zeros_.load(std::memory_order_relaxed);
  state.count = state.native.zeros;
  for (size_t i = 0; i < native_.size(); ++i) {
    const uint64_t count = native_[i].load(std::memory_order_relaxed);
    if (count == 0) continue;
    state.native.counts[static_cast<int>(i) + NativeBuckets::kFirst] = count;
    state.count += count;
  }
  state.sum = sum_.load(std::memory_order_relaxed);
  const MutexLock lock(exemplars_lock_);
  state.exemplars = exemplars_;
  return state;
}

Histogram& HistogramFamily::Add(std::map<std::string, std::string> labels) {
  const MutexLock lock(lock_);
  std::unique_ptr<Histogram>& series = series_[std::move(labels)];
  if (series == nullptr) series = std::make_unique<Histogram>(bounds_);
  return *series;
}

std::vector<HistogramState> HistogramFamily::States() const {
  const MutexLock lock(lock_);
  std::vector<HistogramState> states;
  for (const auto& [labels, series] : series_) {
    states.push_back(series->State());
    states.back().labels = labels;
  }
  return states;
}

}  // namespace pushpull
