// SPDX-License-Identifier: Apache-2.0
//
// A histogram with two sets of buckets: the bounds that its dashboards were written for, and
// Prometheus's native ones, which need no bounds and err by at most 9 % over the whole range.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"

#include "runtime/base/mutex.h"

namespace pushpull {

// Links a bucket to one observation in it: a step of a trace.
struct Exemplar {
  uint64_t trace = 0;
  uint64_t step = 0;
  double value = 0;
  std::chrono::system_clock::time_point time;
};

// Native bucket i holds values above base^(i-1) and up to base^i, with base = 2^(2^-schema).
struct NativeBuckets {
  static constexpr int kSchema = 3;  // base 1.09
  // From 2^-20, a microsecond, to 2^17, a day and a half. Smaller values count as zero, larger ones
  // in the last bucket.
  static constexpr int kFirst = -20 * (1 << kSchema) + 1;
  static constexpr int kLast = 17 * (1 << kSchema);
  static constexpr double kZeroThreshold = 0x1p-20;

  // The bucket of a number above kZeroThreshold.
  static int IndexOf(double value);

  uint64_t zeros = 0;
  std::map<int, uint64_t> counts;  // by index, nonzero only
};

// One series at one time.
struct HistogramState {
  std::map<std::string, std::string> labels;
  uint64_t count = 0;
  double sum = 0;
  // By bound: observations up to it; those above the last bound are only in `count`.
  std::vector<uint64_t> cumulative;
  std::vector<std::optional<Exemplar>> exemplars;  // by bound, then above the last
  NativeBuckets native;
};

// Thread-safe; observing takes no lock.
class Histogram {
 public:
  // `bounds` must ascend.
  explicit Histogram(std::vector<double> bounds);

  // NaN is ignored: it fits no bucket.
  void Observe(double value);
  // Also makes this the exemplar of its bucket, until a newer one. Takes a lock.
  void Observe(double value, uint64_t trace, uint64_t step);

  // No bound counts more than the total, even while others observe.
  HistogramState State() const;

 private:
  size_t BucketOf(double value) const;

  const std::vector<double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;  // by bound, then above the last
  std::atomic<uint64_t> zeros_ = 0;
  std::array<std::atomic<uint64_t>, NativeBuckets::kLast - NativeBuckets::kFirst + 1> native_{};
  std::atomic<double> sum_ = 0;
  mutable Mutex exemplars_lock_;
  std::vector<std::optional<Exemplar>> exemplars_ ABSL_GUARDED_BY(exemplars_lock_);
};

// The series of one name. Thread-safe.
class HistogramFamily {
 public:
  HistogramFamily(std::string name, std::string help, std::vector<double> bounds)
      : name_(std::move(name)), help_(std::move(help)), bounds_(std::move(bounds)) {}

  // The series with these labels, which lives as long as the family.
  Histogram& Add(std::map<std::string, std::string> labels = {});

  const std::string& name() const { return name_; }
  const std::string& help() const { return help_; }
  const std::vector<double>& bounds() const { return bounds_; }
  std::vector<HistogramState> States() const;

 private:
  const std::string name_;
  const std::string help_;
  const std::vector<double> bounds_;
  mutable Mutex lock_;
  // By labels.
  std::map<std::map<std::string, std::string>, std::unique_ptr<Histogram>> series_
      ABSL_GUARDED_BY(lock_);
};

}  // namespace pushpull
