// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shm/shm_folder.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/transport/channel_choice.h"

namespace pushpull {

ShmFolder::ShmFolder(std::string path, std::string job, const Log& log)
    : path_(std::move(path)), job_(std::move(job)), log_(log) {
  SweepSegments(path_);
}

absl::StatusOr<ShmSegment> ShmFolder::Create() const {
  return ShmSegment::Create(path_, job_);
}

absl::StatusOr<ShmSegment> ShmFolder::Attach(const ShmOffer& offer) const {
  return ShmSegment::Attach(path_, offer);
}

void ShmFolder::WarnOnce(const std::string& peer, const absl::Status& why) const {
  if (has_warned_.exchange(true)) return;
  log_.Warning("a peer on this host is reached over a socket, not over shared memory",
               {{"peer", peer},
                {"why", why.message()},
                {"help",
                 absl::StrCat("give both ends the same ",
                              kShmFolderVariable,
                              " with room in it, or set ",
                              kChannelVariable,
                              "=tcp")}});
}

std::unique_ptr<ShmFolder> OpenShmFolder(const std::string& path,
                                         const std::string& job,
                                         const Log& log) {
  return path.empty() ? nullptr : std::make_unique<ShmFolder>(path, job, log);
}

}  // namespace pushpull
