// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/status_feed.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/base/time_source.h"

namespace pushpull {
namespace {

class SteppedTime final : public TimeSource {
 public:
  SteadyTime Now() const override { return now_; }
  void Advance(Duration duration) { now_ += duration; }

 private:
  SteadyTime now_{std::chrono::hours(1)};
};

class StatusFeedTest : public ::testing::Test {
 protected:
  void Publish(double second, uint64_t step) {
    JobStatus status;
    status.job = "j";
    status.term = Term{1};
    status.view = 1;
    status.step = Step{step};
    feed_.Publish(1000 + second, std::move(status));
  }
  nlohmann::json Ask(const std::string& path) {
    return nlohmann::json::parse(*resources_.at(path).content().text);
  }

  SteppedTime time_;
  StatusFeed feed_{time_};
  std::map<std::string, HttpResource> resources_ = feed_.Resources();
};

TEST_F(StatusFeedTest, HasNothingToShowBeforeTheFirstStatus) {
  EXPECT_EQ(resources_.at("/status.json").content().text, nullptr);
  EXPECT_EQ(resources_.at("/history.json").content().text, nullptr);
}

TEST_F(StatusFeedTest, ShowsTheNewestStatusAndWhatHasHappened) {
  Publish(0, 1);
  JobStatus scaled;
  scaled.term = Term{1};
  scaled.resizes.push_back({.step = Step{1}, .from = 2, .to = 3});
  feed_.Publish(1001, scaled);

  const nlohmann::json status = Ask("/status.json");

  EXPECT_EQ(status["time"], 1001);
  EXPECT_EQ(status["events"][0]["text"], "servers: from 2 to 3 requested");
  EXPECT_EQ(status["events"][0]["kind"], "change");
}

TEST_F(StatusFeedTest, ACrowdOfClientsSharesOneText) {
  Publish(0, 1);
  const HttpContent first = resources_.at("/status.json").content();
  Publish(0.25, 2);

  const HttpContent second = resources_.at("/status.json").content();
  time_.Advance(std::chrono::seconds(1));
  const HttpContent third = resources_.at("/status.json").content();

  EXPECT_EQ(second.text, first.text);
  EXPECT_EQ(second.etag, first.etag);
  EXPECT_NE(third.etag, first.etag);
  EXPECT_EQ(nlohmann::json::parse(*third.text)["step"], 2);
}

TEST_F(StatusFeedTest, TheHistoryHasMoreThanTheStatus) {
  for (int i = 0; i < 100; ++i) Publish(2 * i, static_cast<uint64_t>(i));

  EXPECT_EQ(Ask("/history.json")["time"].size(), 99U);
  EXPECT_EQ(Ask("/status.json")["recent"]["time"].size(), 15U);
}

TEST_F(StatusFeedTest, ServesThePageToo) {
  EXPECT_EQ(resources_.at("/").content_type, "text/html; charset=utf-8");
}

}  // namespace
}  // namespace pushpull
