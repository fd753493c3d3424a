// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/report.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunOutcome Finished() {
  RunOutcome outcome;
  outcome.has_succeeded = true;
  outcome.seconds = 12;
  outcome.restarts = 1;
  JobStatus& status = outcome.status;
  status.job = "fake";
  status.phase = JobPhase::kSucceeded;
  status.epoch = {.term = Term{2}, .counter = 3};
  status.step = Step{100};
  status.samples = 5000;
  status.seconds = 10;
  status.bytes_pushed = 7;
  status.bytes_pulled = 8;
  status.bytes_replicated = 9;
  status.contributors_min = 1;
  status.contributors_max = 2;
  status.uneven_steps = 4;
  status.losses = {{.step = Step{0}, .loss = 2.5}, {.step = Step{99}, .loss = 0.25}};
  status.results = {{"loss", 0.5}, {"accuracy", 0.875}, {"perplexity", 12.5}};
  status.resizes = {{.step = Step{40},
                     .from = 2,
                     .to = 4,
                     .is_settled = true,
                     .seconds = 1.5,
                     .pause_seconds = 0.25,
                     .moved_bytes = 6}};
  status.state_losses = {{.servers = {ServerId{1}},
                          .shards = {ShardId{3}},
                          .chunks = 2,
                          .is_repaired = true,
                          .lowest_version = Step{50},
                          .highest_version = Step{50},
                          .from_workers = 2,
                          .has_optimizer_state = true,
                          .seconds = 0.5}};
  status.servers.resize(2);
  status.workers.resize(3);
  for (int i = 0; i < 99; ++i) status.sync_seconds.Add(0.001);
  status.sync_seconds.Add(1.0);
  for (Quantiles& phase : status.phase_seconds) phase.Add(0.0005);
  return outcome;
}

// The keys of docs/interfaces.md section 2, sections written as PATH/KEY.
constexpr const char* kKeys[] = {"/job",
                                 "/phase",
                                 "/seconds",
                                 "/steps",
                                 "/samples",
                                 "/workers",
                                 "/servers",
                                 "/restarts",
                                 "/epoch",
                                 "/final/loss",
                                 "/final/accuracy",
                                 "/throughput/samples_per_second",
                                 "/sync/p50_seconds",
                                 "/sync/p99_seconds",
                                 "/sync/phases/wire",
                                 "/bytes/pushed",
                                 "/bytes/pulled",
                                 "/bytes/replicated",
                                 "/resizes",
                                 "/state_losses",
                                 "/losses",
                                 "/contributors/min",
                                 "/contributors/max",
                                 "/uneven_steps"};

TEST(FormatReportTest, HasEveryKeyAlsoWhereNothingIsKnown) {
  const nlohmann::json full = nlohmann::json::parse(FormatReport(Finished()));
  const nlohmann::json empty = nlohmann::json::parse(FormatReport(RunOutcome{}));

  for (const char* key : kKeys) {
    EXPECT_TRUE(full.contains(nlohmann::json::json_pointer(key))) << key;
    EXPECT_TRUE(empty.contains(nlohmann::json::json_pointer(key))) << key;
  }
}

TEST(FormatReportTest, SaysWhatTheCoordinatorKnew) {
  const nlohmann::json report = nlohmann::json::parse(FormatReport(Finished()));

  EXPECT_EQ(report["phase"], "Succeeded");
  EXPECT_EQ(report["steps"], 100);
  EXPECT_EQ(report["epoch"], 3);
  EXPECT_EQ(report["uneven_steps"], 4);
  EXPECT_EQ(report["servers"], 2);
  EXPECT_EQ(report["resizes"],
            nlohmann::json::parse(R"([{"step": 40, "from": 2, "to": 4, "settled": true,
                "seconds": 1.5, "pause_seconds": 0.25, "moved_bytes": 6}])"));
  EXPECT_EQ(report["workers"], 3);
  const nlohmann::json& loss = report["state_losses"][0];
  EXPECT_EQ(loss["servers"], nlohmann::json::parse("[1]"));
  EXPECT_EQ(loss["shards"], nlohmann::json::parse("[3]"));
  EXPECT_EQ(loss["lowest_step"], 50);
  EXPECT_EQ(loss["chunks_from_workers"], 2);
  EXPECT_TRUE(loss["optimizer_state_step"].is_null());
  EXPECT_EQ(
      loss["text"],
      "shard 3 (2 chunks) lost with server-1; 2 values from workers; step 50; optimizer state "
      "zero; 0.5 s without them");
  EXPECT_EQ(report["final"]["accuracy"], 0.875);
  EXPECT_EQ(report["final"]["perplexity"], 12.5);
  EXPECT_EQ(report["throughput"]["samples_per_second"], 500);
  EXPECT_NEAR(report["sync"]["p50_seconds"], 0.001, 0.00002);
  EXPECT_NEAR(report["sync"]["phases"]["optimize"], 0.0005, 0.00001);
  EXPECT_EQ(report["sync"]["phases"].size(), kSyncPhaseCount);
  EXPECT_EQ(report["losses"][1]["step"], 99);
  EXPECT_EQ(report["losses"][1]["loss"], 0.25);
}

TEST(FormatReportTest, AFailedJobSaysWhy) {
  RunOutcome outcome = Finished();
  outcome.has_succeeded = false;
  outcome.failure = "server-1 is lost";

  const nlohmann::json report = nlohmann::json::parse(FormatReport(outcome));

  EXPECT_EQ(report["phase"], "Failed");
  EXPECT_EQ(report["failure"], "server-1 is lost");
}

TEST(FormatReportTest, WhatIsNoNumberIsNull) {
  RunOutcome outcome = Finished();
  outcome.status.results["loss"] = std::numeric_limits<double>::quiet_NaN();
  outcome.status.losses[0].loss = std::numeric_limits<double>::infinity();

  const nlohmann::json report = nlohmann::json::parse(FormatReport(outcome));

  EXPECT_TRUE(report["final"]["loss"].is_null());
  EXPECT_TRUE(report["losses"][0]["loss"].is_null());
}

TEST(FormatReportTest, TheFinalLossIsTheLastOneWhereTheProgramNamedNone) {
  RunOutcome outcome = Finished();
  outcome.status.results.clear();

  const nlohmann::json report = nlohmann::json::parse(FormatReport(outcome));

  EXPECT_EQ(report["final"]["loss"], 0.25);
  EXPECT_TRUE(report["final"]["accuracy"].is_null());
}

TEST(FormatReportTest, TextsWithoutValidUtf8DoNotPreventTheReport) {
  RunOutcome outcome = Finished();
  outcome.failure = "tensor \xff";

  const nlohmann::json report = nlohmann::json::parse(FormatReport(outcome));

  EXPECT_THAT(report["failure"].get<std::string>(), HasSubstr("tensor "));
}

TEST(FormatSummaryTest, TellsAPersonHowItWent) {
  const std::string text = FormatSummary(Finished(), "workdir/logs");

  EXPECT_THAT(text, HasSubstr("fake: succeeded after 12.0 s"));
  EXPECT_THAT(text, HasSubstr("100 steps, 500 samples/s"));
  EXPECT_THAT(text, HasSubstr("test accuracy 0.8750, loss 0.5000"));
  EXPECT_THAT(text, HasSubstr("logs: workdir/logs"));
}

TEST(FormatSummaryTest, SaysNothingOfAnAccuracyThatNobodyReported) {
  EXPECT_THAT(FormatSummary(RunOutcome{}, "logs"), Not(HasSubstr("accuracy")));
}

}  // namespace
}  // namespace pushpull
