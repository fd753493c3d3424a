// SPDX-License-Identifier: Apache-2.0
//
// The command lines and environments of a job's processes. Pure, except that finding a worker's
// program reads the file system.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/local/launcher.h"
#include "runtime/local/process.h"
#include "runtime/local/workdir.h"

namespace pushpull {

struct CoordinatorStart {
  std::string manifest;  // the workdir's copy
  uint64_t term = 1;
  // An earlier start in this run has saved: use its checkpoint, not that of restoreFrom.
  bool goes_on = false;
  // The endpoint of a coordinator that has died; this one listens there too, so that members and
  // open status pages find it. Without `control`: this is the first.
  Endpoint recover_at;
};

ProcessSpec CoordinatorProcess(const LaunchOptions& options, const CoordinatorStart& start);
ProcessSpec ServerProcess(const LaunchOptions& options,
                          const TrainingJob& job,
                          int index,
                          const std::string& coordinator);

// `$(NAME)` in command, args and the values of spec.env is replaced as in a pod.
//
// kNotFound: the program is neither beside `pushpull` nor on PATH.
absl::StatusOr<ProcessSpec> WorkerProcess(const LaunchOptions& options,
                                          const TrainingJob& job,
                                          int index,
                                          const std::string& coordinator);

}  // namespace pushpull
