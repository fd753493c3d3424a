// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/status_memory.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

TrainingJobStatus StatusAt(Phase phase) {
  return {.phase = phase};
}

TEST(StatusMemoryTest, TheFirstStatusIsBelieved) {
  StatusMemory memory;

  EXPECT_EQ(memory.Recall(StatusAt(Phase::kRunning)), StatusAt(Phase::kRunning));
}

TEST(StatusMemoryTest, OnlyOwnWritesCount) {
  StatusMemory memory;
  memory.Recall({});
  memory.OnWrite(StatusAt(Phase::kStarting));
  memory.OnWritten();

  EXPECT_EQ(memory.Recall(StatusAt(Phase::kSucceeded)), StatusAt(Phase::kStarting));
}

TEST(StatusMemoryTest, AWriteWithALostAnswerCountsWhereItArrived) {
  for (const bool has_arrived : {false, true}) {
    StatusMemory memory;
    memory.Recall(StatusAt(Phase::kStarting));
    memory.OnWrite(StatusAt(Phase::kRunning));

    const TrainingJobStatus seen = StatusAt(has_arrived ? Phase::kRunning : Phase::kStarting);

    EXPECT_EQ(memory.Recall(seen), seen);
  }
}

}  // namespace
}  // namespace pushpull_operator
