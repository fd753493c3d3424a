// SPDX-License-Identifier: Apache-2.0
//
// Whether a job's steps are faster with the codecs of its tensors or without: on a fast link
// encoding costs more than it saves. Found out by trying, for nobody knows what limits a step.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/ids.h"

namespace pushpull {

// What a trial has found: medians of its steps.
struct CodecVerdict {
  bool uses_codecs = true;
  Duration with{0};
  Duration without{0};
};

// In every round of kRoundSteps the first kWarmUpSteps go on as the round before; the next
// kTrialSteps are encoded and plain in turn; the others are as was faster. Rounds are counted from
// step 0, so that all workers try the same at once and each sees the job's time, not its own.
// Thread-compatible.
class CodecTrial {
 public:
  // Half of the trial is of the slower kind: not 1 % of a round where that takes three times as
  // long.
  static constexpr uint64_t kRoundSteps = 4096;
  static constexpr uint64_t kWarmUpSteps = 4;
  static constexpr uint64_t kTrialSteps = 32;
  // A codec has to be worth this much: it costs bits of the gradients.
  static constexpr double kLeastGain = 0.02;

  // Whether the gradients of this step are to be encoded.
  bool Encodes(Step step) const;

  // A step has taken so long, from its first gradient to the last parameter. The verdict, with the
  // last step of a trial; none where too few of its steps have been seen.
  std::optional<CodecVerdict> Add(Step step, Duration sync);

 private:
  static bool IsTrial(Step step);

  bool uses_codecs_ = true;
  std::vector<Duration> with_;
  std::vector<Duration> without_;
};

}  // namespace pushpull
