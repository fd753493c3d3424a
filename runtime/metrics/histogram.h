// SPDX-License-Identifier: Apache-2.0
//
// A histogram with two sets of buckets: the bounds that its dashboards were written for, and the
// native ones of Prometheus, which need no bounds and err by 9 % at most over the whole range.
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

// What leads from a bucket to one observation in it: the step of a trace.
struct Exemplar {
  uint64_t trace = 0;
  uint64_t step = 0;
  double value = 0;
  std::chrono::system_clock::time_point time;
};

// Native bucket i holds what is above base^(i-1) and at most base^i, with base = 2^(2^-schema).
struct NativeBuckets {
  static constexpr int kSchema = 3;  // base 1.09
  // From 2^-20, a microsecond, to 2^17, a day and a half. What is smaller counts as zero, what is
  // larger in the last bucket.
  static constexpr int kFirst = -20 * (1 << kSchema) + 1;
  static constexpr int kLast = 17 * (1 << kSchema);
  static constexpr double kZeroThreshold = 0x1p-20;

  // Of a positive number above kZeroThreshold.
  static int IndexOf(double value);

  uint64_t zeros = 0;
  std::map<int, uint64_t> counts;  // by index, those above 0
};

// One series at one time.
struct HistogramState {
  std::map<std::string, std::string> labels;
  uint64_t count = 0;
  double sum = 0;
  // By bound: observations of at most so much; what is above the last bound is in `count` only.
  std::vector<uint64_t> cumulative;
  std::vector<std::optional<Exemplar>> exemplars;  // by bound, then of what is above the last
  NativeBuckets native;
};

// Thread-safe; observing takes no lock.
class Histogram {
 public:
  // `bounds` ascend.
  explicit Histogram(std::vector<double> bounds);

  // NaN is ignored: no bucket holds it.
  void Observe(double value);
  // The bucket shows this observation until it has a newer one. Takes a lock.
  void Observe(double value, uint64_t trace, uint64_t step);

  // No bound counts more than the whole, also while others observe.
  HistogramState State() const;

 private:
  size_t BucketOf(double value) const;

  const std::vector<double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;  // by bound, then what is above the last
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

  // The series with these labels. Lives as long as the family.
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
