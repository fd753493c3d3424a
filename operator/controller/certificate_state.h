// SPDX-License-Identifier: Apache-2.0
//
// The certificates of one job's members as last read from its Secret, and when to read them again.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "operator/api/pod.h"
#include "operator/controller/certificate_keeper.h"
#include "operator/controller/job_coordinator.h"
#include "operator/controller/observed_job.h"
#include "operator/plan/observation.h"

namespace pushpull_operator {

class CertificateState {
 public:
  // Reads the Secret, and writes it where it is the operator's and due. Blocks on the API server.
  // After an error (those of CertificateKeeper::Ensure) the certificates read before stay in use.
  absl::Status Refresh(CertificateKeeper& keeper, const ObservedJob& job);
  // Refreshes a running job's certificates if they are due. A job without pods has its Secret read
  // before the first pod is created; one that has ended needs no new ones, but its coordinator may
  // still be asked.
  absl::Status RefreshIfDue(CertificateKeeper& keeper, const ObservedJob& job, bool is_active);
  // A coordinator refused the certificates: the Secret may have others by now. Reads it at most
  // once in 30 s; true: they have changed.
  bool RefreshAfterRefusal(CertificateKeeper& keeper, const ObservedJob& job);

  // Where to reach the coordinator in `pod`: by its address, not by the name of the Service, so
  // that it is this coordinator and no earlier one, and no resolver is needed. kUnavailable: the
  // certificates are unknown.
  absl::StatusOr<CoordinatorEndpoint> EndpointOf(const ObservedJob& job,
                                                 const Stored<Pod>& pod) const;
  // Why the last refresh failed, where that is worth a condition.
  const std::optional<Obstacle>& obstacle() const { return obstacle_; }
  // Nothing without TLS.
  std::optional<WallTime> recheck_at() const;

 private:
  MemberCertificates certificates_;
  std::optional<Obstacle> obstacle_;
  WallTime reread_at_{};
};

}  // namespace pushpull_operator
