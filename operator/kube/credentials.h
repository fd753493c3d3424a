// SPDX-License-Identifier: Apache-2.0
//
// The token and the TLS material of requests. Kubernetes rotates tokens every hour, and authorities
// now and then, by replacing files; requests use the new ones at most 15 s later.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

#include "operator/kube/cluster_access.h"
#include "operator/kube/http_exchange.h"
#include "runtime/base/mutex.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

// Thread-safe. Calls of Current read files of a few kilobytes.
class Credentials {
 public:
  static constexpr std::chrono::seconds kReloadAfter{15};

  // Reads every file once. An error names the file and what is wrong with it, never its content.
  // `time` must outlive it.
  static absl::StatusOr<std::unique_ptr<Credentials>> Create(ClusterAccess access,
                                                             const pushpull::TimeSource& time);

  const ClusterAccess& access() const { return access_; }

  // Reloads the files when it is time. Files that are missing or invalid change nothing: the last
  // good ones stay in use.
  RequestAuth Current() ABSL_LOCKS_EXCLUDED(mu_);
  // Why the last reload failed; OK if it did not.
  absl::Status last_error() const ABSL_LOCKS_EXCLUDED(mu_);
  // The server rejected the token: the next call of Current reloads.
  void Invalidate() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Credentials(ClusterAccess access, const pushpull::TimeSource& time)
      : access_(std::move(access)), time_(time) {}
  absl::Status Reload() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ClusterAccess access_;
  const pushpull::TimeSource& time_;

  mutable pushpull::Mutex mu_;
  RequestAuth current_ ABSL_GUARDED_BY(mu_);
  pushpull::SteadyTime next_reload_ ABSL_GUARDED_BY(mu_);
  absl::Status last_error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
