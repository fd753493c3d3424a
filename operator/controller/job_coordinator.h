// SPDX-License-Identifier: Apache-2.0
//
// What the operator asks of the coordinators of jobs (proto/pushpull/v1/control.proto), whoever
// carries it there.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "operator/plan/job_plan.h"
#include "operator/plan/observation.h"
#include "runtime/base/deadline.h"

namespace pushpull_operator {

// Each call blocks until the answer or its deadline; `address` is host:port. Thread-safe.
//
// kUnavailable, kDeadlineExceeded   nobody answers there. Ask again later.
// kFailedPrecondition               not now: the job is at another point than was thought.
class JobCoordinator {
 public:
  virtual ~JobCoordinator() = default;
  virtual absl::StatusOr<CoordinatorWord> Ask(const std::string& address,
                                              pushpull::Deadline deadline) = 0;
  virtual absl::Status Resize(const std::string& address,
                              const AskSize& size,
                              pushpull::Deadline deadline) = 0;
  virtual absl::Status SetSync(const std::string& address,
                               const AskSync& sync,
                               pushpull::Deadline deadline) = 0;
  // The number of the save.
  virtual absl::StatusOr<uint64_t> Save(const std::string& address,
                                        pushpull::Deadline deadline) = 0;
};

}  // namespace pushpull_operator
