// SPDX-License-Identifier: Apache-2.0
//
// The token and the TLS context that requests use now. Kubernetes replaces tokens every hour and
// authorities now and then, by replacing files; both are in use here at most 15 s later.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "operator/kube/cluster_access.h"
#include "runtime/base/mutex.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

struct AccessNow {
  std::shared_ptr<const TlsContext> tls;  // the same object for as long as nothing has changed
  std::string token;                      // may be empty
};

// Thread-safe. Reads files in the calls of Current, which are a few kilobytes.
class Credentials {
 public:
  static constexpr std::chrono::seconds kRereadAfter{15};

  // Reads every file once. An error names the file and what is wrong with it, never its content.
  // `time` must outlive it.
  static absl::StatusOr<std::unique_ptr<Credentials>> Create(ClusterAccess access,
                                                             const pushpull::TimeSource& time);

  const ClusterAccess& access() const { return access_; }

  // Files that cannot be read, or not be used, change nothing: the last good ones stay in use.
  AccessNow Current() ABSL_LOCKS_EXCLUDED(mu_);
  // Why the files could not be used at the last look; OK when they could.
  absl::Status last_look() const ABSL_LOCKS_EXCLUDED(mu_);
  // The server has refused the token: the next call of Current looks at the files.
  void Distrust() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Credentials(ClusterAccess access, const pushpull::TimeSource& time)
      : access_(std::move(access)), time_(time) {}
  absl::Status Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ClusterAccess access_;
  const pushpull::TimeSource& time_;

  mutable pushpull::Mutex mu_;
  TlsMaterial material_ ABSL_GUARDED_BY(mu_);
  AccessNow now_ ABSL_GUARDED_BY(mu_);
  pushpull::SteadyTime next_look_ ABSL_GUARDED_BY(mu_);
  absl::Status last_look_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
