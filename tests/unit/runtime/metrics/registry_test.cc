// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/gauge.h>

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsRegistryTest, WritesASeriesThatWasNeverSetAsZero) {
  MetricsRegistry metrics;
  prometheus::BuildGauge()
      .Name("pushpull_members")
      .Help("Live members.")
      .Register(metrics.registry())
      .Add({{"role", "server"}});

  EXPECT_THAT(metrics.Text(), HasSubstr("# TYPE pushpull_members gauge\n"));
  EXPECT_THAT(metrics.Text(), HasSubstr("pushpull_members{role=\"server\"} 0\n"));
}

TEST(MetricsRegistryTest, TwoNodesShareNoSeries) {
  MetricsRegistry one;
  const MetricsRegistry other;
  prometheus::BuildGauge().Name("pushpull_step").Help("Step.").Register(one.registry()).Add({});

  EXPECT_THAT(other.Text(), Not(HasSubstr("pushpull_step")));
}

}  // namespace
}  // namespace pushpull
