// SPDX-License-Identifier: Apache-2.0
//
// The calls of the operator to the coordinators of jobs (proto/pushpull/v1/control.proto),
// independent of the transport.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "operator/plan/job_plan.h"
#include "operator/plan/observation.h"
#include "runtime/tls/tls_identity.h"

namespace pushpull_operator {

struct CoordinatorEndpoint {
  std::string address;                                 // host:port
  std::shared_ptr<const pushpull::TlsFiles> tls = {};  // of a member of its job; null: no TLS
};

// Each call blocks until the answer or its deadline. Thread-safe.
//
//   kUnavailable, kDeadlineExceeded   no answer, or the certificates of the two ends do not match.
//                                     Retry later.
//   kFailedPrecondition               the job is not in the state that the call needs.
class JobCoordinator {
 public:
  virtual ~JobCoordinator() = default;
  virtual absl::StatusOr<CoordinatorReport> GetStatus(const CoordinatorEndpoint& endpoint,
                                                      pushpull::Deadline deadline) = 0;
  virtual absl::Status Resize(const CoordinatorEndpoint& endpoint,
                              const RequestSize& size,
                              pushpull::Deadline deadline) = 0;
  virtual absl::Status SetSync(const CoordinatorEndpoint& endpoint,
                               const RequestSync& sync,
                               pushpull::Deadline deadline) = 0;
  // Returns the number of the save.
  virtual absl::StatusOr<uint64_t> Save(const CoordinatorEndpoint& endpoint,
                                        pushpull::Deadline deadline) = 0;
};

}  // namespace pushpull_operator
