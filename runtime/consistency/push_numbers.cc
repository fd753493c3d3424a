// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/push_numbers.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr double kSamplesMin = 1e-18;
constexpr double kSamplesMax = 1e18;
// Optimizers compute in float32.
constexpr double kLearningRateMax = std::numeric_limits<float>::max();

}  // namespace

absl::Status CheckPushNumbers(double samples, double learning_rate) {
  // Written so that NaN, which is neither, fails.
  if (!(samples == 0 || (samples >= kSamplesMin && samples <= kSamplesMax))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "samples must be 0, or from ", kSamplesMin, " to ", kSamplesMax, ", is ", samples));
  }
  if (!(learning_rate >= 0 && learning_rate <= kLearningRateMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("learning rate must be above 0 and finite in float32, or 0 for the registered "
                     "one, is ",
                     learning_rate));
  }
  return absl::OkStatus();
}

}  // namespace pushpull
