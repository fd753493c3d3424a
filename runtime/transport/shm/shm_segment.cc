// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shm/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status_macros.h"
#include "runtime/transport/channel_choice.h"

namespace pushpull {
namespace {

// One page with the token, then the rings.
constexpr size_t kTokenBytes = 4096;
constexpr size_t kSegmentBytes = kTokenBytes + 2 * kPayloadRingBytes;

// Both ends write, so either can punch a hole, which reads as zeros and kills nobody.
constexpr int kRingSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status RingFailed(const std::string& what) {
  return StatusFromErrno(errno, what);
}

// Reading beyond the end would kill this process (SIGBUS), now or after a peer has moved the end.
absl::Status CheckSealed(int file) {
  struct stat found {};
  if (fstat(file, &found) != 0) return RingFailed("stat a ring of shared memory");
  const auto size = static_cast<uint64_t>(found.st_size);
  // A file on a file system has no seals except the one against sealing.
  const int seals = S_ISREG(found.st_mode) ? fcntl(file, F_GET_SEALS) : -1;
  const bool is_sealed = seals >= 0 && (seals & kRingSeals) == kRingSeals;
  if (is_sealed && size == kSegmentBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("a ring of shared memory has %d bytes, %s; expected %d, sealed",
                      size,
                      is_sealed ? "sealed" : "not sealed",
                      kSegmentBytes));
}

}  // namespace

absl::StatusOr<ShmSegment> ShmSegment::Map(int file) {
  void* const memory = mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return RingFailed("map a ring of shared memory");
  return ShmSegment(std::span(static_cast<std::byte*>(memory), kSegmentBytes));
}

absl::StatusOr<ShmSegment::Made> ShmSegment::Make() {
  FileDescriptor file(memfd_create("pushpull-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) return RingFailed("create a ring of shared memory");
  if (ftruncate(file.get(), kSegmentBytes) != 0 || fcntl(file.get(), F_ADD_SEALS, kRingSeals) != 0)
    return RingFailed("seal a ring of shared memory");
  PUSHPULL_ASSIGN_OR_RETURN(ShmSegment segment, Map(file.get()));
  segment.proof_ = RandomToken();
  std::memcpy(segment.memory_.data(), segment.proof_.data(), sizeof(ShmToken));
  return Made{.segment = std::move(segment), .descriptor = std::move(file)};
}

absl::StatusOr<ShmSegment> ShmSegment::Attach(const FileDescriptor& memory) {
  PUSHPULL_RETURN_IF_ERROR(CheckSealed(memory.get()));
  PUSHPULL_ASSIGN_OR_RETURN(ShmSegment segment, Map(memory.get()));
  std::memcpy(segment.proof_.data(), segment.memory_.data(), sizeof(ShmToken));
  return segment;
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : memory_(std::exchange(other.memory_, {})),
      proof_(other.proof_),
      lease_(std::move(other.lease_)) {}

ShmSegment::~ShmSegment() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

std::span<std::byte> ShmSegment::Outgoing(ShmSide side) const {
  const size_t index = side == ShmSide::kConnecting ? 0 : 1;
  return memory_.subspan(kTokenBytes + index * kPayloadRingBytes, kPayloadRingBytes);
}

std::span<std::byte> ShmSegment::Incoming(ShmSide side) const {
  return Outgoing(side == ShmSide::kConnecting ? ShmSide::kAccepting : ShmSide::kConnecting);
}

// Two paths are the same folder if they lead to the same place: a pod's containers may mount it
// differently.
ShmFolder::ShmFolder(const std::string& path, const std::string& job, const Log& log) : log_(log) {
  struct stat folder {};
  if (stat(path.c_str(), &folder) != 0) {
    found_ = RingFailed(absl::StrCat("find the folder ", path));
  } else if (!S_ISDIR(folder.st_mode)) {
    found_ = absl::FailedPreconditionError(absl::StrCat(path, " is no folder"));
  } else {
    prefix_ = absl::StrCat("pushpull-",
                           job,
                           "-",
                           absl::Hex(static_cast<uint64_t>(folder.st_dev)),
                           "-",
                           absl::Hex(static_cast<uint64_t>(folder.st_ino)),
                           "-");
  }
}

absl::StatusOr<DescriptorInbox> ShmFolder::OpenInbox() const {
  PUSHPULL_RETURN_IF_ERROR(found_);
  return DescriptorInbox::Open(prefix_);
}

absl::StatusOr<ShmSegment> ShmFolder::MakeFor(const ShmOffer& inbox) const {
  PUSHPULL_RETURN_IF_ERROR(found_);
  if (!absl::StartsWith(inbox.name, prefix_)) {
    return absl::NotFoundError(absl::StrCat(
        "it shares memory as \"", inbox.name, "\", in another folder or job than ", prefix_));
  }
  const std::shared_ptr<const void> lease(nullptr,
                                          [made = num_made_](const void*) { made->fetch_sub(1); });
  if (num_made_->fetch_add(1) >= kSegmentsMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "it has made ", kSegmentsMax, " rings of shared memory, the most there may be"));
  }
  PUSHPULL_ASSIGN_OR_RETURN(ShmSegment::Made made, ShmSegment::Make());
  PUSHPULL_RETURN_IF_ERROR(SendDescriptor(inbox, made.descriptor.get()));
  made.segment.Hold(lease);
  return std::move(made.segment);
}

void ShmFolder::WarnOnce(const std::string& peer, const absl::Status& why) const {
  if (has_warned_.exchange(true)) return;
  log_.Warning(
      "a peer on this host is reached over a socket, not over shared memory",
      {{"peer", peer},
       {"why", why.message()},
       {"help",
        absl::StrFormat(
            "give both ends the same %s, or set %s=tcp", kShmFolderVariable, kChannelVariable)}});
}

std::unique_ptr<ShmFolder> OpenShmFolder(const std::string& path,
                                         const std::string& job,
                                         const Log& log) {
  return path.empty() ? nullptr : std::make_unique<ShmFolder>(path, job, log);
}

}  // namespace pushpull
