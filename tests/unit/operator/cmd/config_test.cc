// SPDX-License-Identifier: Apache-2.0
#include "operator/cmd/config.h"

#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string ProblemOf(const std::string& text) {
  const absl::StatusOr<OperatorConfig> config = ParseConfig(text, "operator.yaml");
  EXPECT_TRUE(absl::IsInvalidArgument(config.status())) << config.status();
  return std::string(config.status().message());
}

// What the chart renders.
TEST(ConfigTest, EveryKeyOfTheChartIsRead) {
  const absl::StatusOr<OperatorConfig> config = ParseConfig(R"(
logLevel: warn
runtimeImage: "pushpull/pushpull:0.1.0"
podSecurityContext: {"runAsNonRoot":true}
namespaces: ["team-a","team-b"]
workers: 3
certificateLifeSeconds: 86400
client:
  qps: 20
  burst: 40
leaderElection:
  enabled: false
  leaseName: p-pushpull
  leaseNamespace: pushpull-system
  leaseDurationSeconds: 30
  renewDeadlineSeconds: 20
  retryPeriodSeconds: 4
metricsPort: 9000
)",
                                                            "operator.yaml");

  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->log_level, pushpull::LogLevel::kWarning);
  EXPECT_EQ(config->member_log_level, "warning");
  EXPECT_EQ(config->runtime_image, "pushpull/pushpull:0.1.0");
  EXPECT_EQ(config->pod_security_context, R"({"runAsNonRoot":true})");
  EXPECT_THAT(config->namespaces, ElementsAre("team-a", "team-b"));
  EXPECT_EQ(config->workers, 3);
  EXPECT_EQ(config->certificate_lifetime, std::chrono::days(1));
  EXPECT_EQ(config->rate_limit.qps, 20);
  EXPECT_EQ(config->rate_limit.burst, 40);
  EXPECT_FALSE(config->has_election);
  EXPECT_EQ(config->lease,
            (ObjectKey{.object_namespace = "pushpull-system", .name = "p-pushpull"}));
  EXPECT_EQ(config->lease_times.lease_duration, seconds(30));
  EXPECT_EQ(config->lease_times.renew_deadline, seconds(20));
  EXPECT_EQ(config->lease_times.retry_period, seconds(4));
  EXPECT_EQ(config->metrics_port, 9000);
}

TEST(ConfigTest, DefaultsMatchTheChart) {
  const absl::StatusOr<OperatorConfig> config = ParseConfig("runtimeImage: i", "operator.yaml");

  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->log_level, pushpull::LogLevel::kInfo);
  EXPECT_THAT(config->namespaces, IsEmpty());
  EXPECT_EQ(config->workers, 8);
  EXPECT_EQ(config->certificate_lifetime, std::chrono::days(90));
  EXPECT_TRUE(config->has_election);
  EXPECT_EQ(config->lease_times.lease_duration, seconds(15));
  EXPECT_EQ(config->metrics_port, 9464);
}

TEST(ConfigTest, EveryProblemNamesFileAndField) {
  EXPECT_THAT(ProblemOf("{logLevel: loud, workers: 0, metricsPort: 70000, burst: 1}"),
              AllOf(HasSubstr("operator.yaml: "),
                    HasSubstr("logLevel: must be debug, info, warn or error, is \"loud\""),
                    HasSubstr("workers: must be between 1 and 256, is 0"),
                    HasSubstr("metricsPort: must be between 0 and 65535, is 70000"),
                    HasSubstr("runtimeImage: "),
                    HasSubstr("burst: ")));
  EXPECT_THAT(ProblemOf("a: [1"), HasSubstr("operator.yaml: line 1"));
}

TEST(ConfigTest, LeaseTimesMustBeConsistent) {
  EXPECT_THAT(ProblemOf("{runtimeImage: i, leaderElection: {renewDeadlineSeconds: 15}}"),
              HasSubstr("leaderElection: "));
}

}  // namespace
}  // namespace pushpull_operator
