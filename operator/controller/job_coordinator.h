// SPDX-License-Identifier: Apache-2.0
//
// What the operator asks of the coordinators of jobs (proto/pushpull/v1/control.proto), whoever
// carries it there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "operator/plan/job_plan.h"
#include "operator/plan/observation.h"
#include "runtime/base/deadline.h"
#include "runtime/tls/tls_identity.h"

namespace pushpull_operator {

struct CoordinatorPlace {
  std::string address;                                 // host:port
  std::shared_ptr<const pushpull::TlsFiles> tls = {};  // of a member of its job; null: no TLS
};

// Each call blocks until the answer or its deadline. Thread-safe.
//
// kUnavailable, kDeadlineExceeded   nobody answers there, or the certificates of the two ends do
// not
//                                   fit. Ask again later.
// kFailedPrecondition               not now: the job is at another point than was thought.
class JobCoordinator {
 public:
  virtual ~JobCoordinator() = default;
  virtual absl::StatusOr<CoordinatorWord> Ask(const CoordinatorPlace& place,
                                              pushpull::Deadline deadline) = 0;
  virtual absl::Status Resize(const CoordinatorPlace& place,
                              const AskSize& size,
                              pushpull::Deadline deadline) = 0;
  virtual absl::Status SetSync(const CoordinatorPlace& place,
                               const AskSync& sync,
                               pushpull::Deadline deadline) = 0;
  // The number of the save.
  virtual absl::StatusOr<uint64_t> Save(const CoordinatorPlace& place,
                                        pushpull::Deadline deadline) = 0;
};

}  // namespace pushpull_operator
