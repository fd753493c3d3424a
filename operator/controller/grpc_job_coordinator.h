// SPDX-License-Identifier: Apache-2.0
//
// The operator's calls to coordinators, over gRPC.
#pragma once

#include "operator/controller/job_coordinator.h"
#include "runtime/membership/control_client.h"
#include "runtime/membership/job_status.h"

namespace pushpull_operator {

// The parts on which plans depend.
CoordinatorReport ReportOf(const pushpull::JobStatus& status);

// One connection per call, so that nothing is remembered of a coordinator that is gone.
// Thread-safe.
class GrpcJobCoordinator final : public JobCoordinator {
 public:
  absl::StatusOr<CoordinatorReport> GetStatus(const CoordinatorEndpoint& endpoint,
                                              pushpull::Deadline deadline) override;
  absl::Status Resize(const CoordinatorEndpoint& endpoint,
                      const RequestSize& size,
                      pushpull::Deadline deadline) override;
  absl::Status SetSync(const CoordinatorEndpoint& endpoint,
                       const RequestSync& sync,
                       pushpull::Deadline deadline) override;
  absl::StatusOr<uint64_t> Save(const CoordinatorEndpoint& endpoint,
                                pushpull::Deadline deadline) override;

 private:
  const pushpull::ControlLibrary library_;
};

}  // namespace pushpull_operator
