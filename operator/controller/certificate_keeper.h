// SPDX-License-Identifier: Apache-2.0
//
// Keeps the certificates of jobs in the API server: makes and renews the Secret of a job, and reads
// one that the user has made. Errors never say what is in a Secret.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "operator/api/wall_time.h"
#include "operator/certificates/job_certificates.h"
#include "operator/kube/client.h"
#include "operator/kube/object.h"
#include "runtime/base/time_source.h"
#include "runtime/job/training_job.h"
#include "runtime/tls/tls_identity.h"

namespace pushpull_operator {

// What members of a job show and trust; with it the operator is one of them.
struct MemberCertificates {
  std::string secret;                               // where they are from; empty: the job has none
  std::shared_ptr<const pushpull::TlsFiles> files;  // null: no TLS
  // When to read the Secret again: its renewal is due, or it may have been deleted or replaced.
  WallTime recheck_at{};
};

// Thread-safe; remembers nothing.
class CertificateKeeper {
 public:
  // `life` is that of a member's certificate. `client` and `time` must outlive the keeper.
  CertificateKeeper(KubeClient& client,
                    const pushpull::TimeSource& time,
                    std::chrono::seconds life,
                    std::chrono::seconds call_time);

  // Blocks on the API server, one read and at most one write. `now` is that server's. Errors beside
  // those of KubeClient:
  //
  //   kAlreadyExists   the Secret is not this job's; it was not touched.
  //   kNotFound        the user's Secret does not exist, or lacks a key.
  //   kAborted         another writer was faster. Retry.
  absl::StatusOr<MemberCertificates> Ensure(const ObjectMeta& job,
                                            const pushpull::SecuritySpec& security,
                                            WallTime now);

 private:
  absl::StatusOr<MemberCertificates> Read(const ObjectKey& secret, WallTime now);
  absl::StatusOr<MemberCertificates> EnsureOwn(const ObjectMeta& job,
                                               const ObjectKey& secret,
                                               WallTime now);
  // `present` is null where there is none yet.
  absl::Status Write(const ObjectMeta& job,
                     const ObjectKey& secret,
                     const Object* present,
                     const JobCertificates& certificates);
  pushpull::Deadline CallDeadline() const;

  KubeClient& client_;
  const pushpull::TimeSource& time_;
  const std::chrono::seconds life_;
  const std::chrono::seconds call_time_;
};

}  // namespace pushpull_operator
