// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/tensorboard.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A job that makes ten steps a second, with a loss of each.
void Add(StatusHistory& history, int second) {
  auto status = std::make_shared<JobStatus>();
  status->phase = JobPhase::kRunning;
  status->view = 1;
  status->step = Step{static_cast<uint64_t>(10 * second)};
  for (uint64_t step = 0; step < status->step.value(); ++step)
    status->losses.push_back({.step = Step{step}, .loss = 2, .samples = 1});
  history.Add(1000 + second, status);
}

std::vector<uint64_t> StepsWith(const std::string& tag, const std::vector<ScalarsOfStep>& all) {
  std::vector<uint64_t> steps;
  for (const ScalarsOfStep& it : all) {
    for (const Scalar& scalar : it.scalars)
      if (scalar.tag == tag) steps.push_back(it.step);
  }
  return steps;
}

TEST(NewScalarsTest, EachStepsLossIsWrittenOnceAllWorkersHaveReportedIt) {
  StatusHistory history(StatusHistory::Keeps::kAll);
  WrittenScalars written;
  size_t num_losses = 0;

  for (int second = 0; second < 5; ++second) {
    Add(history, second);
    const std::vector<uint64_t> steps = StepsWith("loss", NewScalars(history, false, written));
    for (const uint64_t step : steps) EXPECT_EQ(step, num_losses++);
  }
  EXPECT_LT(num_losses, 40);
  for (const uint64_t step : StepsWith("loss", NewScalars(history, true, written)))
    EXPECT_EQ(step, num_losses++);

  EXPECT_EQ(num_losses, 40);
  EXPECT_THAT(NewScalars(history, true, written), IsEmpty());
}

TEST(NewScalarsTest, StepsPerSecondAreThoseOfTheInterval) {
  StatusHistory history(StatusHistory::Keeps::kAll);
  WrittenScalars written;
  for (int second = 0; second < 4; ++second) Add(history, second);

  const std::vector<ScalarsOfStep> all = NewScalars(history, false, written);

  std::vector<std::string> rates;
  for (const ScalarsOfStep& it : all) {
    for (const Scalar& scalar : it.scalars)
      if (scalar.tag == "steps_per_second")
        rates.push_back(absl::StrCat(it.step, ": ", scalar.value));
  }
  EXPECT_THAT(rates, Contains("30: 10"));
}

TEST(NewScalarsTest, AnEmptyHistoryHasNone) {
  WrittenScalars written;

  EXPECT_THAT(NewScalars(StatusHistory(StatusHistory::Keeps::kAll), true, written), IsEmpty());
}

}  // namespace
}  // namespace pushpull
