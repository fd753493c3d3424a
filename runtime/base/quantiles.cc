// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/quantiles.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pushpull {
namespace {

constexpr double kGrowth = 1.02;
constexpr double kSmallest = 1e-9;  // smaller values share one bucket: no clock here is finer
constexpr double kLargest = 1e6;

// The geometric mean of the bucket's borders halves the worst error.
double ValueOf(int32_t bucket) {
  return bucket == 0 ? 0 : kSmallest * std::pow(kGrowth, bucket + 0.5);
}

}  // namespace

int32_t Quantiles::BucketOf(double seconds) {
  const double clamped = seconds > kSmallest ? std::min(seconds, kLargest) : kSmallest;
  return static_cast<int32_t>(std::floor(std::log(clamped / kSmallest) / std::log(kGrowth)));
}

void Quantiles::Merge(const Quantiles& other) {
  for (const auto& [bucket, count] : other.counts_) counts_[bucket] += count;
}

Quantiles Quantiles::Since(const Quantiles& earlier) const {
  Quantiles added;
  for (const auto& [bucket, count] : counts_) {
    const auto before = earlier.counts_.find(bucket);
    const uint64_t had = before == earlier.counts_.end() ? 0 : before->second;
    if (count > had) added.counts_[bucket] = count - had;
  }
  return added;
}

uint64_t Quantiles::count() const {
  uint64_t total = 0;
  for (const auto& [bucket, count] : counts_) total += count;
  return total;
}

double Quantiles::At(double q) const {
  const uint64_t total = count();
  if (total == 0) return 0;
  const uint64_t rank =
      std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(q * static_cast<double>(total))));
  uint64_t seen = 0;
  for (const auto& [bucket, count] : counts_) {
    seen += count;
    if (seen >= rank) return ValueOf(bucket);
  }
  return 0;
}

double Quantiles::Mean() const {
  double sum = 0;
  uint64_t total = 0;
  for (const auto& [bucket, count] : counts_) {
    sum += ValueOf(bucket) * static_cast<double>(count);
    total += count;
  }
  return total == 0 ? 0 : sum / static_cast<double>(total);
}

}  // namespace pushpull
