// SPDX-License-Identifier: Apache-2.0
//
// The process that cleans up when the launcher is killed: it holds one end of a pipe, and when the
// other end closes it kills every registered process group and removes the job's shared memory.
// PR_SET_PDEATHSIG alone does not reach the children of a worker's shell.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/base/file_descriptor.h"

namespace pushpull {

// Thread-compatible.
class Guardian {
 public:
  // Forks; call it before this process has threads. Objects /dev/shm/<shm_prefix>* are the job's.
  static absl::StatusOr<std::unique_ptr<Guardian>> Start(const std::string& shm_prefix);
  // Dismisses it: it kills what is still registered, which after an orderly end is nothing.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  void Watch(pid_t group) { Tell('+', group); }
  void Forget(pid_t group) { Tell('-', group); }

 private:
  Guardian(pid_t pid, FileDescriptor pipe) : pid_(pid), pipe_(std::move(pipe)) {}
  void Tell(char what, pid_t group);

  const pid_t pid_;
  FileDescriptor pipe_;
};

}  // namespace pushpull
