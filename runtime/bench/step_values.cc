// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/step_values.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/substitute.h"

namespace pushpull {
namespace {

// A prime: no size of a tensor or a chunk is a multiple of it, so misplaced values are detected.
constexpr uint64_t kPeriod = 1021;
constexpr uint64_t kShiftOfStep = 7;

uint64_t PhaseOf(uint64_t step, uint64_t place) {
  return (place + kShiftOfStep * step) % kPeriod;
}

}  // namespace

StepValues::StepValues(uint32_t worker, uint32_t workers) {
  const uint64_t of_all = uint64_t{workers} * (workers + 1) / 2;
  for (uint64_t i = 0; i < 2 * kPeriod; ++i) {
    const uint64_t value = i % kPeriod;
    gradient_.push_back(static_cast<float>(value + worker + 1));
    sum_.push_back(static_cast<float>(value * workers + of_all));
  }
}

void StepValues::Fill(uint64_t step, uint64_t place, std::span<float> gradient) const {
  const float* const period = &gradient_[PhaseOf(step, place)];
  for (size_t i = 0; i < gradient.size(); i += kPeriod)
    std::copy_n(period, std::min<size_t>(kPeriod, gradient.size() - i), &gradient[i]);
}

absl::Status StepValues::Check(uint64_t step, uint64_t place, std::span<const float> sum) const {
  const float* const period = &sum_[PhaseOf(step, place)];
  for (size_t i = 0; i < sum.size(); i += kPeriod) {
    const size_t count = std::min<size_t>(kPeriod, sum.size() - i);
    if (std::memcmp(period, &sum[i], count * sizeof(float)) == 0) continue;
    const size_t at =
        static_cast<size_t>(std::mismatch(period, period + count, &sum[i]).first - period);
    constexpr absl::string_view kText = "step $0: value $1 of the sum is $2, expected $3";
    return absl::DataLossError(
        absl::Substitute(kText, step, place + i + at, sum[i + at], period[at]));
  }
  return absl::OkStatus();
}

}  // namespace pushpull
