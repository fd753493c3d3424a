// SPDX-License-Identifier: Apache-2.0
#include "operator/metrics/operator_metrics.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using testing::HasSubstr;
using testing::Not;

class OperatorMetricsTest : public testing::Test {
 protected:
  pushpull::MetricsRegistry registry_;
  OperatorMetrics metrics_{registry_};
};

TEST_F(OperatorMetricsTest, EverySeriesExistsFromTheStart) {
  const std::string text = registry_.Text();

  for (const char* series : {"pushpull_operator_jobs{phase=\"Pending\"} 0",
                             "pushpull_operator_jobs{phase=\"Failed\"} 0",
                             "pushpull_operator_reconcile_seconds_count{controller=\"job\"} 0",
                             "pushpull_operator_reconcile_errors_total{controller=\"job\"} 0",
                             "pushpull_operator_queue_depth 0",
                             "pushpull_operator_leader 0",
                             "pushpull_operator_scaling_blocked 0",
                             "pushpull_operator_conflicts_total 0",
                             "pushpull_operator_restarts_total{reason=\"NodeLost\"} 0"}) {
    EXPECT_THAT(text, HasSubstr(series));
  }
}

TEST_F(OperatorMetricsTest, AnEmptyPhaseIsZero) {
  metrics_.Update({.jobs = {{"Running", 3}}, .is_leader = true});
  EXPECT_THAT(registry_.Text(), HasSubstr("pushpull_operator_jobs{phase=\"Running\"} 3\n"));

  metrics_.Update({.jobs = {{"Succeeded", 3}}});

  EXPECT_THAT(registry_.Text(), HasSubstr("pushpull_operator_jobs{phase=\"Running\"} 0\n"));
  EXPECT_THAT(registry_.Text(), HasSubstr("pushpull_operator_jobs{phase=\"Succeeded\"} 3\n"));
  EXPECT_THAT(registry_.Text(), HasSubstr("pushpull_operator_leader 0\n"));
}

TEST_F(OperatorMetricsTest, UnknownReasonsShareOneSeries) {
  metrics_.CountRestart("OOMKilled");
  metrics_.CountRestart("StrangeReason");

  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr("pushpull_operator_restarts_total{reason=\"OOMKilled\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("pushpull_operator_restarts_total{reason=\"Other\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("Strange")));
}

TEST_F(OperatorMetricsTest, WaitingIsNotCpuTime) {
  metrics_.ObserveReconcile(std::chrono::milliseconds(800), std::chrono::milliseconds(2));

  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr("pushpull_operator_reconcile_seconds_sum{controller=\"job\"} 0.8\n"));
  EXPECT_THAT(text,
              HasSubstr("pushpull_operator_reconcile_cpu_seconds_sum{controller=\"job\"} 0.002\n"));
}

TEST_F(OperatorMetricsTest, RequestsAreCountedByVerbAndCode) {
  metrics_.CountRequest("patch", 200);
  metrics_.CountRequest("patch", 200);
  metrics_.CountRequest("list", 0);

  const std::string text = registry_.Text();
  EXPECT_THAT(text,
              HasSubstr("pushpull_operator_api_requests_total{code=\"200\",verb=\"patch\"} 2\n"));
  EXPECT_THAT(text,
              HasSubstr("pushpull_operator_api_requests_total{code=\"0\",verb=\"list\"} 1\n"));
}

}  // namespace
}  // namespace pushpull_operator
