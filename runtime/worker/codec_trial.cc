// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/codec_trial.h"

#include <algorithm>
#include <utility>

namespace pushpull {
namespace {

constexpr size_t kLeastSteps = CodecTrial::kTrialSteps / 4;  // of each kind, for a verdict

uint64_t PlaceOf(Step step) {
  return step.value() % CodecTrial::kRoundSteps;
}

Duration Median(std::vector<Duration> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool CodecTrial::IsTrial(Step step) {
  const uint64_t place = PlaceOf(step);
  return place >= kWarmUpSteps && place < kWarmUpSteps + kTrialSteps;
}

bool CodecTrial::Encodes(Step step) const {
  return IsTrial(step) ? PlaceOf(step) % 2 == 0 : uses_codecs_;
}

std::optional<CodecVerdict> CodecTrial::Add(Step step, Duration sync) {
  if (!IsTrial(step)) return std::nullopt;
  (Encodes(step) ? with_ : without_).push_back(sync);
  if (PlaceOf(step) + 1 < kWarmUpSteps + kTrialSteps) return std::nullopt;
  const std::vector<Duration> with = std::exchange(with_, {});
  const std::vector<Duration> without = std::exchange(without_, {});
  if (std::min(with.size(), without.size()) < kLeastSteps) return std::nullopt;
  CodecVerdict verdict{.with = Median(with), .without = Median(without)};
  uses_codecs_ = ToSeconds(verdict.with) < (1 - kLeastGain) * ToSeconds(verdict.without);
  verdict.uses_codecs = uses_codecs_;
  return verdict;
}

}  // namespace pushpull
