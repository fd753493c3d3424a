// SPDX-License-Identifier: Apache-2.0
#include "runtime/trace/shared_steps.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// One push a step, which takes from 100 n to 100 n + 90.
TraceReport Recorded(uint32_t worker, uint64_t first, uint64_t last) {
  TraceReport report{.worker = WorkerId{worker}};
  for (uint64_t step = first; step <= last; ++step) {
    const auto begin = static_cast<int64_t>(100 * step);
    report.pushes.push_back({.step = Step{step}, .ready = begin + 50, .applied = begin + 90});
    report.spans.push_back({.name = std::to_string(step), .begin = begin, .end = begin + 40});
  }
  return report;
}

std::vector<uint64_t> StepsOf(const TraceReport& report) {
  std::vector<uint64_t> steps;
  for (const TracedPush& push : report.pushes) steps.push_back(push.step.value());
  return steps;
}

std::vector<std::string> SpansOf(const TraceReport& report) {
  std::vector<std::string> names;
  for (const TracedSpan& span : report.spans) names.push_back(span.name);
  return names;
}

TEST(SharedStepsTest, StepsThatEveryWorkerHasAreKept) {
  std::vector<TraceReport> reports = {Recorded(0, 5, 11), Recorded(1, 7, 13), Recorded(2, 6, 12)};

  KeepSharedSteps(3, reports);

  for (const TraceReport& report : reports) {
    EXPECT_THAT(StepsOf(report), ElementsAre(7, 8, 9)) << report.worker.value();
    EXPECT_THAT(SpansOf(report), ElementsAre("7", "8", "9")) << report.worker.value();
  }
}

TEST(SharedStepsTest, PartsOfAWorkerCountTogether) {
  std::vector<TraceReport> reports = {Recorded(0, 5, 6), Recorded(0, 7, 9), Recorded(1, 6, 10)};

  KeepSharedSteps(3, reports);

  EXPECT_THAT(StepsOf(reports[0]), ElementsAre(6));
  EXPECT_THAT(SpansOf(reports[0]), ElementsAre("6"));
  EXPECT_THAT(StepsOf(reports[1]), ElementsAre(7, 8));
  EXPECT_THAT(StepsOf(reports[2]), ElementsAre(6, 7, 8));
}

TEST(SharedStepsTest, WorkersThatAreFarApartKeepTheirOwn) {
  std::vector<TraceReport> reports = {Recorded(0, 5, 11), Recorded(1, 100, 106)};

  KeepSharedSteps(3, reports);

  EXPECT_THAT(StepsOf(reports[0]), ElementsAre(5, 6, 7));
  EXPECT_THAT(StepsOf(reports[1]), ElementsAre(100, 101, 102));
}

TEST(SharedStepsTest, AWorkerWithoutPushesHidesNothing) {
  std::vector<TraceReport> reports = {Recorded(0, 5, 8), {.worker = WorkerId{1}}};

  KeepSharedSteps(20, reports);

  EXPECT_THAT(StepsOf(reports[0]), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(StepsOf(reports[1]), IsEmpty());
}

TEST(SharedStepsTest, NothingRecordedIsNothingKept) {
  std::vector<TraceReport> reports;

  KeepSharedSteps(20, reports);

  EXPECT_THAT(reports, IsEmpty());
}

}  // namespace
}  // namespace pushpull
