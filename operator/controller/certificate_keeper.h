// SPDX-License-Identifier: Apache-2.0
//
// Keeps the certificates of jobs in the API server: creates and renews the Secret of a job, and
// reads one that the user created. Errors never reveal what is in a Secret.
#pragma once

#include <chrono>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "operator/certificates/job_certificates.h"
#include "operator/controller/job_state.h"
#include "operator/controller/observed_job.h"
#include "operator/kube/client.h"

namespace pushpull_operator {

// Thread-safe, as long as only one thread at a time uses a CertificateState; remembers nothing.
class CertificateKeeper {
 public:
  // `life`: lifetime of a member's certificate. `client` must outlive the keeper.
  CertificateKeeper(KubeClient& client, std::chrono::seconds life) : client_(client), life_(life) {}

  // Reads the Secret, and writes it if it is the operator's and due. Blocks on the API server: one
  // read and at most one write. After an error, the certificates read before stay in use. Errors
  // besides those of KubeClient:
  //
  //   kAlreadyExists   the Secret is not this job's; it was not touched.
  //   kNotFound        the user's Secret does not exist, or lacks a key.
  //   kAborted         another writer was faster. Retry.
  //   kOutOfRange      the certificates of so many members do not fit into a Secret.
  //
  // `next`: members about to get a pod, besides those that the spec asks for or that have one.
  absl::Status Refresh(const ObservedJob& job,
                       const std::vector<MemberId>& next,
                       CertificateState& state);
  // Refreshes a running job's certificates if they are due. For a job without pods, the Secret is
  // read before the first pod is created; a job that has ended needs no new certificates, but its
  // coordinator may still be called.
  absl::Status RefreshIfDue(const ObservedJob& job, bool is_active, CertificateState& state);
  // Deletes the job's own Secret for good. OK if there is none, or if it is not the job's.
  absl::Status DeleteOwn(const ObservedJob& job);
  // A coordinator refused the certificates: the Secret may have others by now. Reads it at most
  // once every 30 s; true: they have changed.
  bool RefreshAfterRefusal(const ObservedJob& job, CertificateState& state);

 private:
  absl::Status Read(const ObjectKey& secret, WallTime now, CertificateState& state);
  absl::Status EnsureOwn(const ObservedJob& job,
                         const ObjectKey& secret,
                         const std::vector<MemberId>& next,
                         CertificateState& state);
  // `present` is null if there is none yet.
  absl::StatusOr<ObjectMeta> Write(const ObjectMeta& job,
                                   const ObjectKey& secret,
                                   const Object* present,
                                   const JobCertificates& certificates);

  KubeClient& client_;
  const std::chrono::seconds life_;
};

}  // namespace pushpull_operator
