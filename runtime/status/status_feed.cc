// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/status_feed.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

#include "runtime/status/page_files.h"
#include "runtime/status/status_json.h"

namespace pushpull {
namespace {

// A page asks once a second, so it sees a change within two.
constexpr Duration kMadePeriod = std::chrono::milliseconds(900);
// A status has the points of this time: a page that missed earlier ones asks for the whole history.
constexpr double kRecentSeconds = 30;

}  // namespace

StatusFeed::StatusFeed(const TimeSource& time)
    : time_(time), process_(absl::StrCat(time.Now().time_since_epoch().count())) {}

void StatusFeed::Publish(double unix_seconds, JobStatus status) {
  auto shared = std::make_shared<const JobStatus>(std::move(status));
  MutexLock lock(mu_);
  kept_.Add(unix_seconds, std::move(shared));
}

std::map<std::string, HttpResource> StatusFeed::Resources() {
  std::map<std::string, HttpResource> resources = PageResources();
  resources["/status.json"] = {.content_type = "application/json", .content = [this] {
                                 return Cached(status_, &StatusFeed::MakeStatus);
                               }};
  resources["/history.json"] = {.content_type = "application/json", .content = [this] {
                                  return Cached(history_, &StatusFeed::MakeHistory);
                                }};
  return resources;
}

HttpContent StatusFeed::Cached(Made& made, std::string (StatusFeed::*make)()) {
  const SteadyTime now = time_.Now();
  if (made.content.text != nullptr && now - made.at < kMadePeriod) return made.content;
  std::string text = (this->*make)();
  if (text.empty()) return {};
  made = {.at = now,
          .content = {.text = std::make_shared<const std::string>(std::move(text)),
                      .etag = absl::StrCat(process_, "-", ++num_made_)}};
  return made.content;
}

// Copies the points; the status is shared.
StatusHistory StatusFeed::CopyHistory() {
  MutexLock lock(mu_);
  return kept_;
}

std::string StatusFeed::MakeStatus() {
  const StatusHistory history = CopyHistory();
  if (history.status() == nullptr) return "";
  nlohmann::json page = StatusJson(*history.status());
  const double time = history.time();
  page["time"] = time;
  page["recent"] = PointsJson(history, time - kRecentSeconds);
  page["events"] = EventsJson(history);
  return Dump(page, -1);
}

std::string StatusFeed::MakeHistory() {
  const StatusHistory history = CopyHistory();
  if (history.status() == nullptr) return "";
  return Dump(PointsJson(history), -1);
}

}  // namespace pushpull
