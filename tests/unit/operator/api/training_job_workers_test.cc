// SPDX-License-Identifier: Apache-2.0
#include "operator/api/training_job_workers.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

TrainingJobWorkers DecodeWorkers(const std::string& text) {
  return DecodeTrainingJobWorkers(*ParseObject(text));
}

TEST(TrainingJobWorkersTest, EveryFieldIsRead) {
  const TrainingJobWorkers workers = DecodeWorkers(
      R"({"metadata":{"name":"j"},"spec":{"replicas":3,"minReplicas":2,"maxReplicas":5},
          "status":{"replicas":4,"selector":"a=b","agreedReplicas":6,"finished":true}})");

  EXPECT_EQ(workers.size, (WorkersSize{3, 2, 5}));
  EXPECT_EQ(workers.status, (WorkersScaleStatus{4, "a=b", 6, true}));
}

TEST(TrainingJobWorkersTest, WhatIsMissingOrOddIsNothing) {
  const TrainingJobWorkers workers = DecodeWorkers(
      R"({"metadata":{"name":"j"},"spec":{"replicas":"3","minReplicas":-2,"maxReplicas":1e18}})");

  EXPECT_EQ(workers.size, (WorkersSize{0, 0, 0}));
  EXPECT_EQ(workers.status, WorkersScaleStatus());
}

TEST(TrainingJobWorkersTest, APatchIsOfOneVersion) {
  EXPECT_EQ(WorkerReplicasPatchText(3, "7"),
            R"({"metadata":{"resourceVersion":"7"},"spec":{"workers":{"replicas":3}}})");
  EXPECT_EQ(
      SizePatchText({3, 2, 5}, "7"),
      R"({"metadata":{"resourceVersion":"7"},"spec":{"maxReplicas":5,"minReplicas":2,"replicas":3}})");
}

}  // namespace
}  // namespace pushpull_operator
