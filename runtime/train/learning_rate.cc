// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace pushpull {

absl::Status Validate(const LearningRateSettings& settings) {
  const double rate = settings.base_learning_rate;
  if (!(rate > 0 && std::isfinite(rate))) {
    return absl::InvalidArgumentError(
        absl::StrCat("base_learning_rate: must be above 0 and finite, is ", rate));
  }
  if (settings.base_batch == 0) {
    return absl::InvalidArgumentError("base_batch: must be above 0, is 0");
  }
  return absl::OkStatus();
}

namespace {

double Annealing(const LearningRateSettings& settings, Step step) {
  const uint64_t begin = settings.warmup_steps;
  if (settings.anneal_steps <= begin || step.value() <= begin) return 1;
  const uint64_t left = settings.anneal_steps - std::min(step.value(), settings.anneal_steps);
  return static_cast<double>(left) / static_cast<double>(settings.anneal_steps - begin);
}

}  // namespace

double LearningRateAt(const LearningRateSettings& settings, uint64_t global_batch, Step step) {
  const double base = settings.base_learning_rate;
  const double scale = static_cast<double>(global_batch) / static_cast<double>(settings.base_batch);
  if (scale <= 1 || step.value() >= settings.warmup_steps) {
    return base * scale * Annealing(settings, step);
  }
  const double progress =
      static_cast<double>(step.value()) / static_cast<double>(settings.warmup_steps);
  return base * (1 + (scale - 1) * progress);
}

}  // namespace pushpull
