// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/codec_trial.h"

#include <chrono>
#include <functional>
#include <optional>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

using std::chrono::microseconds;

constexpr uint64_t kTrialEnd = CodecTrial::kWarmUpSteps + CodecTrial::kTrialSteps;

// Steps from `first` on, each as long as its kind and number say; the last verdict.
std::optional<CodecVerdict> RunSteps(
    CodecTrial& trial,
    uint64_t first,
    uint64_t count,
    const std::function<int64_t(bool encoded, uint64_t step)>& time) {
  std::optional<CodecVerdict> last;
  for (uint64_t i = first; i < first + count; ++i) {
    const Step step{i};
    const auto verdict = trial.Add(step, microseconds(time(trial.Encodes(step), i)));
    if (verdict) last = verdict;
  }
  return last;
}

TEST(CodecTrialTest, EncodesBeforeTheFirstVerdict) {
  const CodecTrial trial;
  for (uint64_t i = 0; i < CodecTrial::kWarmUpSteps; ++i) EXPECT_TRUE(trial.Encodes(Step{i}));
  EXPECT_TRUE(trial.Encodes(Step{1000}));
}

TEST(CodecTrialTest, TriesBothEquallyOften) {
  const CodecTrial trial;
  uint64_t encoded = 0;
  for (uint64_t i = CodecTrial::kWarmUpSteps; i < kTrialEnd; ++i)
    encoded += trial.Encodes(Step{i}) ? 1 : 0;
  EXPECT_EQ(2 * encoded, CodecTrial::kTrialSteps);
}

TEST(CodecTrialTest, BypassesCodecsThatCostTime) {
  CodecTrial trial;
  const auto verdict =
      RunSteps(trial, 0, kTrialEnd, [](bool encoded, uint64_t) { return encoded ? 1200 : 1000; });
  ASSERT_TRUE(verdict.has_value());
  EXPECT_FALSE(verdict->uses_codecs);
  EXPECT_EQ(verdict->with, Duration(microseconds(1200)));
  EXPECT_EQ(verdict->without, Duration(microseconds(1000)));
  for (uint64_t i = kTrialEnd; i < CodecTrial::kRoundSteps + CodecTrial::kWarmUpSteps; ++i)
    EXPECT_FALSE(trial.Encodes(Step{i})) << i;
}

TEST(CodecTrialTest, UsesCodecsThatSaveTime) {
  CodecTrial trial;
  const auto verdict =
      RunSteps(trial, 0, kTrialEnd, [](bool encoded, uint64_t) { return encoded ? 600 : 1000; });
  ASSERT_TRUE(verdict.has_value());
  EXPECT_TRUE(verdict->uses_codecs);
  EXPECT_TRUE(trial.Encodes(Step{kTrialEnd}));
}

TEST(CodecTrialTest, IgnoresInsignificantGains) {
  CodecTrial trial;
  RunSteps(trial, 0, kTrialEnd, [](bool encoded, uint64_t) { return encoded ? 990 : 1000; });
  EXPECT_FALSE(trial.Encodes(Step{kTrialEnd}));
}

TEST(CodecTrialTest, OutliersDoNotDecide) {
  CodecTrial trial;
  RunSteps(trial, 0, kTrialEnd, [](bool encoded, uint64_t step) {
    return step % 6 == 4 ? 50'000 : encoded ? 600 : 1000;
  });
  EXPECT_TRUE(trial.Encodes(Step{kTrialEnd}));
}

TEST(CodecTrialTest, NextRoundDetectsAnotherLinkSpeed) {
  CodecTrial trial;
  RunSteps(trial, 0, kTrialEnd, [](bool encoded, uint64_t) { return encoded ? 1200 : 1000; });
  const auto verdict =
      RunSteps(trial, CodecTrial::kRoundSteps, kTrialEnd, [](bool encoded, uint64_t) {
        return encoded ? 3000 : 9000;
      });
  ASSERT_TRUE(verdict.has_value());
  EXPECT_TRUE(trial.Encodes(Step{CodecTrial::kRoundSteps + kTrialEnd}));
}

TEST(CodecTrialTest, NoVerdictAfterJoiningDuringATrial) {
  CodecTrial trial;
  const auto verdict = RunSteps(trial, kTrialEnd - 3, 3, [](bool, uint64_t) { return 1000; });
  EXPECT_FALSE(verdict.has_value());
  EXPECT_TRUE(trial.Encodes(Step{kTrialEnd}));
}

}  // namespace
}  // namespace pushpull
