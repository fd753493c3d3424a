// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/status_json.h"

#include <cmath>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pushpull {
namespace {

TEST(StatusJsonTest, AMemberHasItsStateInAWord) {
  JobStatus status;
  status.servers.push_back({.server = ServerId{3}, .is_alive = true, .data_address = "a:1"});
  status.workers.push_back({.worker = WorkerId{0}, .is_alive = true, .is_member = true});
  status.workers.push_back({.worker = WorkerId{1}, .is_alive = true});
  status.workers.push_back({.worker = WorkerId{2}, .has_left = true});
  status.workers.push_back({.worker = WorkerId{3}, .was_released = true});
  status.workers.push_back({.worker = WorkerId{4}});

  const nlohmann::json json = StatusJson(status);

  EXPECT_EQ(json["servers"][0]["index"], 3);
  EXPECT_EQ(json["servers"][0]["data"], "a:1");
  EXPECT_EQ(json["workers"][0]["state"], "member");
  EXPECT_EQ(json["workers"][1]["state"], "joining");
  EXPECT_EQ(json["workers"][2]["state"], "done");
  EXPECT_EQ(json["workers"][3]["state"], "released");
  EXPECT_EQ(json["workers"][4]["state"], "gone");
}

TEST(StatusJsonTest, AStallIsATextAndItsParts) {
  JobStatus status;
  EXPECT_EQ(StatusJson(status)["stalled"], "");
  EXPECT_TRUE(StatusJson(status)["stall"].is_null());
  status.stall = Stall{.step = Step{3}, .tensor = "w", .missing = {WorkerId{1}}, .seconds = 10};

  const nlohmann::json json = StatusJson(status);

  EXPECT_EQ(json["stalled"], ToString(*status.stall));
  EXPECT_EQ(json["stall"]["workers"], nlohmann::json({1}));
  EXPECT_EQ(json["stall"]["tensor"], "w");
}

TEST(StatusJsonTest, ManyLossesAreThinnedOutAndTheNewestStays) {
  JobStatus status;
  for (uint64_t i = 0; i < 4096; ++i) status.losses.push_back({.step = Step{i}, .loss = 1});

  const nlohmann::json losses = StatusJson(status)["losses"];

  EXPECT_LE(losses.size(), kLossesShown + 1);
  EXPECT_GT(losses.size(), kLossesShown / 2);
  EXPECT_EQ(losses.front()["step"], 0);
  EXPECT_EQ(losses.back()["step"], 4095);
}

TEST(StatusJsonTest, WhatJsonCannotSayIsNull) {
  JobStatus status;
  status.results["accuracy"] = std::nan("");
  status.failure = "no \xff UTF-8";

  const std::string text = Dump(StatusJson(status), -1);

  EXPECT_TRUE(nlohmann::json::parse(text)["results"]["accuracy"].is_null());
}

// A page asks for this once a second.
TEST(StatusJsonTest, AThousandMembersAreWithinAMegabyte) {
  JobStatus status;
  for (uint32_t i = 0; i < 1000; ++i) {
    status.workers.push_back({.worker = WorkerId{i},
                              .is_alive = true,
                              .is_member = true,
                              .metrics_address = "worker-1000.some-job.some-namespace:9464",
                              .pid = 4'000'000,
                              .step = Step{1'000'000}});
  }
  for (uint32_t i = 0; i < 512; ++i) {
    status.servers.push_back({.server = ServerId{i},
                              .is_alive = true,
                              .data_address = "server-1000.some-job.some-namespace:7171",
                              .metrics_address = "server-1000.some-job.some-namespace:9464"});
  }

  EXPECT_LT(Dump(StatusJson(status), -1).size(), size_t{1} << 20);
}

TEST(PointsJsonTest, AreListsOfEqualLengthWithNullForNothing) {
  StatusHistory history(StatusHistory::Keeps::kNewest);
  JobStatus status;
  status.term = Term{1};
  status.view = 1;
  for (int i = 0; i < 4; ++i) {
    if (i == 3) status.sync_seconds.Add(0.5);
    history.Add(1000 + 2 * i, std::make_shared<const JobStatus>(status));
  }

  const nlohmann::json points = PointsJson(history);
  const nlohmann::json newest = PointsJson(history, 1004);

  EXPECT_EQ(points["time"], nlohmann::json({1002, 1004, 1006}));
  for (const char* name : {"step", "sync_seconds", "samples_per_second", "loss"})
    EXPECT_EQ(points[name].size(), 3U) << name;
  EXPECT_EQ(points["phases"].size(), kSyncPhaseCount);
  EXPECT_EQ(points["phases"]["wait"].size(), 3U);
  EXPECT_TRUE(points["sync_seconds"][0].is_null());
  EXPECT_NEAR(points["sync_seconds"][2].get<double>(), 0.5, 0.01);
  EXPECT_EQ(newest["time"], nlohmann::json({1006}));
}

}  // namespace
}  // namespace pushpull
