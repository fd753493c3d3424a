// SPDX-License-Identifier: Apache-2.0
//
// What a coordinator's metrics port serves besides the metrics: the status page and the JSON that
// it reads (docs/interfaces.md section 6).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/base/mutex.h"
#include "runtime/base/time_source.h"
#include "runtime/membership/job_status.h"
#include "runtime/metrics/http_exposer.h"
#include "runtime/status/status_history.h"

namespace pushpull {

// Takes the job's statuses from the coordinator's thread and turns them into JSON on the exposer's,
// at most about once a second, however many clients ask. Thread-safe; no lock is held while JSON is
// made.
class StatusFeed {
 public:
  // `time` outlives the feed.
  explicit StatusFeed(const TimeSource& time);

  // The newest status, at `unix_seconds` since 1970.
  void Publish(double unix_seconds, JobStatus status) ABSL_LOCKS_EXCLUDED(mu_);

  // Resources by path. The feed outlives the server of these resources.
  std::map<std::string, HttpResource> Resources();

 private:
  // One text and when it was made; only the exposer's thread uses it.
  struct Made {
    SteadyTime at;
    HttpContent content;
  };
  HttpContent Cached(Made& made, std::string (StatusFeed::*make)());
  std::string MakeStatus() ABSL_LOCKS_EXCLUDED(mu_);
  std::string MakeHistory() ABSL_LOCKS_EXCLUDED(mu_);
  StatusHistory CopyHistory() ABSL_LOCKS_EXCLUDED(mu_);

  const TimeSource& time_;
  const std::string process_;  // part of its ETags: those of another process differ
  Made status_;
  Made history_;
  uint64_t num_made_ = 0;

  Mutex mu_;
  StatusHistory kept_ ABSL_GUARDED_BY(mu_){StatusHistory::Keeps::kNewest};
};

}  // namespace pushpull
