// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "operator/controller/job_state.h"

namespace pushpull_operator {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr WallTime kStart{seconds(1'769'860'800)};

Event Of(const std::string& reason) {
  return {.reason = reason, .action = "Restart", .note = "worker-0"};
}

TEST(EventHistoryTest, TheSameAgainCountsUpTheFirst) {
  EventHistory history;

  EXPECT_EQ(history.Record(Of("Error"), "e.1", kStart), (EventWrite{.name = "e.1", .count = 1}));
  EXPECT_EQ(history.Record(Of("Evicted"), "e.2", kStart), (EventWrite{.name = "e.2", .count = 1}));
  EXPECT_EQ(history.Record(Of("Error"), "e.3", kStart + minutes(9)),
            (EventWrite{.name = "e.1", .count = 2}));
  EXPECT_EQ(history.Record(Of("Error"), "e.4", kStart + minutes(18)),
            (EventWrite{.name = "e.1", .count = 3}));
}

TEST(EventHistoryTest, TheSameMuchLaterIsAnother) {
  EventHistory history;
  history.Record(Of("Error"), "e.1", kStart);

  EXPECT_EQ(history.Record(Of("Error"), "e.2", kStart + minutes(10)),
            (EventWrite{.name = "e.2", .count = 1}));
}

TEST(EventHistoryTest, AFailingJobWritesTenEventsAMinute) {
  EventHistory history;
  int told = 0;
  for (int second = 0; second < 120; ++second) {
    const std::string name = "e." + std::to_string(second);
    told += history.Record(Of(name), name, kStart + seconds(second)) ? 1 : 0;
  }

  EXPECT_EQ(told, 20);
}

}  // namespace
}  // namespace pushpull_operator
