// SPDX-License-Identifier: Apache-2.0
//
// Where a process meets its neighbours in shared memory: /dev/shm, or the memory volume that the
// containers of one pod share.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/log.h"
#include "runtime/transport/shm/shm_segment.h"

namespace pushpull {

// Thread-safe.
class ShmFolder {
 public:
  // Removes what a process that was killed left there. Blocks on the file system.
  ShmFolder(std::string path, std::string job, const Log& log);

  // As those of ShmSegment.
  absl::StatusOr<ShmSegment> Create() const;
  absl::StatusOr<ShmSegment> Attach(const ShmOffer& offer) const;
  // Says, once in this object's life, why a connection goes without shared memory.
  void Complain(const std::string& peer, const absl::Status& why) const;

 private:
  const std::string path_;
  const std::string job_;
  const Log log_;
  mutable std::atomic<bool> has_complained_ = false;
};

// Null for an empty path.
std::unique_ptr<ShmFolder> OpenShmFolder(const std::string& path,
                                         const std::string& job,
                                         const Log& log);

}  // namespace pushpull
