// SPDX-License-Identifier: Apache-2.0
//
// A mergeable histogram with logarithmic buckets, for quantiles of durations in reports. Prometheus
// histograms have a dozen buckets; a report's p99 wants 2 %.
#pragma once

#include <cstdint>
#include <map>

namespace pushpull {

// Counts of positive seconds in buckets whose borders grow by 2 %: a quantile is within 2 % of a
// value that was added. At most about 1,400 buckets between 1 ns and 1,000 s. Thread-compatible.
class Quantiles {
 public:
  void Add(double seconds) { ++counts_[BucketOf(seconds)]; }
  void Merge(const Quantiles& other);
  // What was added since this was `earlier`.
  Quantiles Since(const Quantiles& earlier) const;

  // The value below which the share `q` (0 to 1) of what was added lies; 0 when nothing was.
  double At(double q) const;
  uint64_t count() const;

  // Bucket number to count: the form in which a worker sends it to the coordinator.
  const std::map<int32_t, uint64_t>& buckets() const { return counts_; }
  static Quantiles FromBuckets(std::map<int32_t, uint64_t> buckets);

 private:
  static int32_t BucketOf(double seconds);

  std::map<int32_t, uint64_t> counts_;
};

}  // namespace pushpull
