// SPDX-License-Identifier: Apache-2.0
//
// The folder in which a process and its neighbours share memory: /dev/shm, or the memory volume of
// a pod's containers.
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
  // Removes segments that killed processes left behind. Blocks on the file system.
  ShmFolder(std::string path, std::string job, const Log& log);

  // As those of ShmSegment.
  absl::StatusOr<ShmSegment> Create() const;
  absl::StatusOr<ShmSegment> Attach(const ShmOffer& offer) const;
  // Logs why a connection has no shared memory; only the first call does.
  void WarnOnce(const std::string& peer, const absl::Status& why) const;

 private:
  const std::string path_;
  const std::string job_;
  const Log log_;
  mutable std::atomic<bool> has_warned_ = false;
};

// Null for an empty path.
std::unique_ptr<ShmFolder> OpenShmFolder(const std::string& path,
                                         const std::string& job,
                                         const Log& log);

}  // namespace pushpull
