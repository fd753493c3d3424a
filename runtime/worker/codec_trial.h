// SPDX-License-Identifier: Apache-2.0
//
// Measures whether a job's steps are faster with the codecs of its tensors or without: on a fast
// link encoding costs more than it saves, and the bottleneck of a step is not known in advance.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"

namespace pushpull {

// The result of a trial: medians of its steps.
struct CodecVerdict {
  bool uses_codecs = true;
  Duration with{0};
  Duration without{0};
};

// In every round of kRoundSteps, the first kWarmUpSteps continue as in the previous round, the next
// kTrialSteps alternate between encoded and plain, and the rest use whichever was faster. Rounds
// are counted from step 0, so that all workers try the same at the same time and measure the job,
// not themselves. Thread-compatible.
class CodecTrial {
 public:
  // Half of a trial's steps are of the slower kind: below 1 % of a round even if they take three
  // times as long.
  static constexpr uint64_t kRoundSteps = 4096;
  static constexpr uint64_t kWarmUpSteps = 4;
  static constexpr uint64_t kTrialSteps = 32;
  // The minimum gain in time that justifies a codec, because it costs precision.
  static constexpr double kLeastGain = 0.02;

  // Whether the gradients of this step are encoded.
  bool Encodes(Step step) const;

  // Adds the duration of a step, from its first gradient to the last parameter. With the last step
  // of a trial, returns its verdict; empty if too few of its steps were measured.
  std::optional<CodecVerdict> Add(Step step, Duration sync);

 private:
  static bool IsTrial(Step step);

  bool uses_codecs_ = true;
  std::vector<Duration> with_;
  std::vector<Duration> without_;
};

}  // namespace pushpull
