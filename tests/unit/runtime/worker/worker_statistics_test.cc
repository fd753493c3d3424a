// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/worker_statistics.h"

#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

class WorkerStatisticsTest : public ::testing::Test {
 protected:
  void AddLoss(uint64_t step) { statistics_.AddLoss({Step{step}, 1.0, 8}); }
  WorkerStats Report() { return statistics_.TakeReport({}); }

  MetricsRegistry registry_;
  WorkerMetrics metrics_{registry_};
  WorkerStatistics statistics_{WorkerId{0}, metrics_};
};

auto IsOfStep(uint64_t step) {
  return Field(&LossPoint::step, Step{step});
}

TEST_F(WorkerStatisticsTest, ALossIsReportedOnce) {
  AddLoss(1);
  EXPECT_THAT(Report().losses, ElementsAre(IsOfStep(1)));
  AddLoss(2);

  const WorkerStats report = Report();
  EXPECT_THAT(report.losses, ElementsAre(IsOfStep(2)));
  EXPECT_EQ(report.losses_end, 2U);
  EXPECT_THAT(Report().losses, IsEmpty());
}

TEST_F(WorkerStatisticsTest, StepsBeforeTheWorkersOwnDoNotCount) {
  statistics_.SetStep(Step{0});
  EXPECT_EQ(Report().steps_made, 0);

  statistics_.Begin(Step{100});
  statistics_.SetStep(Step{100});
  EXPECT_EQ(Report().steps_made, 0);
  statistics_.SetStep(Step{103});

  EXPECT_EQ(Report().steps_made, 3);
}

TEST_F(WorkerStatisticsTest, ANewSessionHasAllLossesInOrder) {
  AddLoss(1);
  Report();
  AddLoss(2);
  statistics_.RepeatLosses();
  AddLoss(3);

  const WorkerStats report = Report();
  EXPECT_THAT(report.losses, ElementsAre(IsOfStep(1), IsOfStep(2), IsOfStep(3)));
  EXPECT_EQ(report.losses_end, 3U);
}

TEST_F(WorkerStatisticsTest, TheNewestLossesAreRepeated) {
  for (uint64_t step = 1; step <= 5000; ++step) {
    AddLoss(step);
    if (step % 100 == 0) Report();
  }
  statistics_.RepeatLosses();

  const WorkerStats report = Report();
  ASSERT_EQ(report.losses.size(), 4096U);
  EXPECT_EQ(report.losses.back().step, Step{5000});
  EXPECT_EQ(report.losses_end, 5000U);
}

}  // namespace
}  // namespace pushpull
