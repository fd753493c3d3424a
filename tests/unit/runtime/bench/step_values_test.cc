// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/step_values.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::HasSubstr;

std::vector<float> SumOf(uint32_t workers, uint64_t step, uint64_t place, size_t size) {
  std::vector<float> sum(size, 0);
  for (uint32_t worker = 0; worker < workers; ++worker) {
    std::vector<float> gradient(size);
    StepValues(worker, workers).Fill(step, place, gradient);
    for (size_t i = 0; i < size; ++i) sum[i] += gradient[i];
  }
  return sum;
}

TEST(StepValuesTest, TheSumOfAllGradientsIsRight) {
  for (const uint32_t workers : {1U, 2U, 5U}) {
    const std::vector<float> sum = SumOf(workers, 3, 700, 5'000);

    EXPECT_TRUE(StepValues(0, workers).Check(3, 700, sum).ok());
  }
}

TEST(StepValuesTest, OneWrongValueIsFoundWhereverItLies) {
  for (const size_t at : {0U, 1'020U, 1'021U, 4'999U}) {
    std::vector<float> sum = SumOf(2, 0, 10, 5'000);
    sum[at] += 1;

    const absl::Status checked = StepValues(1, 2).Check(0, 10, sum);

    EXPECT_TRUE(absl::IsDataLoss(checked));
    EXPECT_THAT(std::string(checked.message()),
                HasSubstr("value " + std::to_string(at + 10) + " "));
  }
}

TEST(StepValuesTest, ASumOfAnotherStepOrPlaceOrOfFewerWorkersIsWrong) {
  const std::vector<float> sum = SumOf(2, 4, 100, 2'000);

  EXPECT_TRUE(StepValues(0, 2).Check(4, 100, sum).ok());
  EXPECT_FALSE(StepValues(0, 2).Check(5, 100, sum).ok());
  EXPECT_FALSE(StepValues(0, 2).Check(4, 101, sum).ok());
  EXPECT_FALSE(StepValues(0, 3).Check(4, 100, sum).ok());
}

}  // namespace
}  // namespace pushpull
