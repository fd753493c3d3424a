// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/trainer.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/train/local_job.h"

namespace pushpull {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Images that are easy to tell apart: class c has row 2c white.
ImageSet StripedImages(uint32_t images) {
  ImageSet set;
  for (uint32_t image = 0; image < images; ++image) {
    const uint32_t label = image % kImageClasses;
    std::vector<uint8_t> pixels(kImageHeight * kImageWidth);
    std::fill_n(pixels.begin() + 2 * label * kImageWidth, kImageWidth, uint8_t{255});
    set.pixels.insert(set.pixels.end(), pixels.begin(), pixels.end());
    set.labels.push_back(static_cast<uint8_t>(label));
  }
  return set;
}

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    settings_.epochs = 2;
    settings_.batch = 10;
    settings_.base_batch = 10;
    settings_.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 0.05};
  }

  absl::Status Run(const LocalJob::Options& options, LocalJob::Record& record) {
    char* text = nullptr;
    size_t size = 0;
    std::FILE* lines = open_memstream(&text, &size);
    const absl::StatusOr<int> trained =
        Train(std::make_unique<LocalJob>(options, record), images_, images_, settings_, lines);
    std::fclose(lines);
    lines_.assign(text, size);
    std::free(text);
    exit_code_ = trained.value_or(1);
    return trained.status();
  }

  const ImageSet images_ = StripedImages(100);
  TrainingSettings settings_;
  std::string lines_;
  int exit_code_ = 0;
};

TEST_F(TrainerTest, LearnsAndReportsResults) {
  LocalJob::Record record;

  const absl::Status status = Run({}, record);

  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(record.results["accuracy"], 1);
  EXPECT_LT(record.results["loss"], record.losses.front() / 2);
  EXPECT_TRUE(record.has_left);
  EXPECT_THAT(lines_, HasSubstr("epoch 1/2 loss "));
  EXPECT_THAT(lines_, HasSubstr("epoch 2/2 loss "));
  EXPECT_THAT(lines_, HasSubstr("\ntest accuracy 1.0000\n"));
}

TEST_F(TrainerTest, ReturnsTheExitCodeOfTheJob) {
  LocalJob::Record record;
  LocalJob::Record broken;

  EXPECT_TRUE(Run({.exit_code = 143}, record).ok());
  EXPECT_EQ(exit_code_, 143);
  EXPECT_TRUE(Run({.push_result = absl::CancelledError("told"), .exit_code = 143}, broken).ok());
  EXPECT_EQ(exit_code_, 143);
}

TEST_F(TrainerTest, RunsAreReproducible) {
  LocalJob::Record first;
  LocalJob::Record second;

  ASSERT_TRUE(Run({}, first).ok());
  ASSERT_TRUE(Run({}, second).ok());

  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.pushes.back().gradient, second.pushes.back().gradient);
}

TEST_F(TrainerTest, ReplacementContinuesTheSamples) {
  settings_.optimizer.learning_rate = 1e-30;  // every step sees the same values
  LocalJob::Record whole;
  LocalJob::Record rest;

  ASSERT_TRUE(Run({}, whole).ok());
  ASSERT_TRUE(Run({.start_step = Step{17}}, rest).ok());

  EXPECT_THAT(rest.steps, ElementsAre(Step{17}, Step{18}, Step{19}));
  EXPECT_THAT(rest.losses, ElementsAre(whole.losses[17], whole.losses[18], whole.losses[19]));
}

TEST_F(TrainerTest, ReplacementOfADoneWorkerReportsTheResults) {
  LocalJob::Record record;

  const absl::Status status = Run({.start_step = Step{20}}, record);

  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(record.results.count("accuracy"), 1);
  EXPECT_TRUE(record.has_left);
}

TEST_F(TrainerTest, OnlyWorkerZeroEvaluates) {
  settings_.steps_max = 1;
  LocalJob::Record record;

  ASSERT_TRUE(Run({.worker = WorkerId{1}, .workers = 2}, record).ok());

  EXPECT_THAT(record.results, IsEmpty());
  EXPECT_EQ(lines_, "");
  EXPECT_TRUE(record.has_left);
}

TEST_F(TrainerTest, LearningRateScalesWithWorkers) {
  settings_.steps_max = 1;
  LocalJob::Record record;

  ASSERT_TRUE(Run({.workers = 5}, record).ok());

  EXPECT_DOUBLE_EQ(record.pushes.front().options.learning_rate, 0.25);
  EXPECT_EQ(record.pushes.front().options.samples, 10);
}

TEST_F(TrainerTest, LearningRateAnnealsToTheEnd) {
  LocalJob::Record record;

  ASSERT_TRUE(Run({.start_step = Step{18}}, record).ok());

  std::vector<double> rates;
  for (const LocalJob::Push& push : record.pushes) {
    if (push.tensor == "hidden.weight") rates.push_back(push.options.learning_rate);
  }
  EXPECT_THAT(rates, ElementsAre(DoubleEq(0.005), DoubleEq(0.0025)));
}

TEST_F(TrainerTest, WorkerWithoutSamplesPushesZeros) {
  settings_.batch = 1;
  settings_.epochs = 1;  // 100 = 1 x 99 + 1: the last step has one sample for 99 workers
  LocalJob::Record record;

  ASSERT_TRUE(Run({.worker = WorkerId{98}, .workers = 99, .start_step = Step{1}}, record).ok());

  ASSERT_EQ(record.pushes.size(), 4U);
  for (const LocalJob::Push& push : record.pushes) {
    EXPECT_EQ(push.options.samples, 0);
    EXPECT_THAT(push.gradient, testing::Each(0));
  }
}

TEST_F(TrainerTest, FailedStepEndsTheTraining) {
  LocalJob::Record record;

  const absl::Status status =
      Run({.push_result = absl::UnavailableError("server-1 is gone")}, record);

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("server-1 is gone"));
  EXPECT_THAT(record.steps, IsEmpty());
  EXPECT_FALSE(record.has_left);
}

}  // namespace
}  // namespace pushpull
