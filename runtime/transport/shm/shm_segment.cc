// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shm/shm_segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status_macros.h"
#include "runtime/transport/channel_choice.h"

namespace pushpull {
namespace {

// Name: pushpull-<job>-<16 hexadecimal digits>. A later version of the layout gets another prefix.
constexpr absl::string_view kPrefix = "pushpull-";
constexpr size_t kDigits = 16;
constexpr size_t kNameBytesMax = 255;

// A page: offer's token, proof. Then the rings.
constexpr size_t kTokensBytes = 4096;
constexpr size_t kSegmentBytes = kTokensBytes + 2 * kPayloadRingBytes;

std::string NewName(const std::string& job) {
  return absl::StrCat(kPrefix, job, "-", absl::Hex(RandomToken()[0], absl::kZeroPad16));
}

bool IsSegmentName(absl::string_view name) {
  if (!absl::StartsWith(name, kPrefix) || name.size() < kPrefix.size() + 1 + kDigits ||
      name.size() > kNameBytesMax || absl::StrContains(name, '/'))
    return false;
  const absl::string_view digits = name.substr(name.size() - kDigits);
  return name[name.size() - kDigits - 1] == '-' &&
         std::all_of(
             digits.begin(), digits.end(), [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

absl::Status Failed(const std::string& what) {
  return StatusFromErrno(errno, what);
}

absl::StatusOr<std::span<std::byte>> Map(int file, const std::string& path) {
  void* const memory = mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return Failed(absl::StrCat("map ", path));
  return std::span(static_cast<std::byte*>(memory), kSegmentBytes);
}

// The name appears when the file is complete and locked: SweepSegments never sees an unfinished
// one, and a process that dies before leaves nothing behind.
absl::Status GiveName(int file, const std::string& path) {
  if (flock(file, LOCK_EX | LOCK_NB) != 0) return Failed(absl::StrCat("lock ", path));
  const std::string link = absl::StrCat("/proc/self/fd/", file);
  if (linkat(AT_FDCWD, link.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0)
    return Failed(absl::StrCat("name ", path));
  return absl::OkStatus();
}

// Reading beyond the file's end, or a page that cannot be allocated, would kill this process
// (SIGBUS).
absl::Status CheckAllocated(int file, const std::string& path) {
  struct stat found {};
  if (fstat(file, &found) != 0) return Failed(absl::StrCat("stat ", path));
  const auto size = static_cast<uint64_t>(found.st_size);
  const uint64_t allocated = static_cast<uint64_t>(found.st_blocks) * 512;
  if (S_ISREG(found.st_mode) && size == kSegmentBytes && allocated >= kSegmentBytes)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, " has ", size, " bytes, ", allocated, " of them allocated; expected ", kSegmentBytes));
}

// Removes segments whose creators have ended. Those in use are locked.
void SweepSegments(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), &closedir);
  if (entries == nullptr) return;  // Create reports why
  while (const dirent* entry = readdir(entries.get())) {
    if (!IsSegmentName(entry->d_name)) continue;
    const std::string path = absl::StrCat(folder, "/", entry->d_name);
    const FileDescriptor file(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file.is_open() && flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
}

}  // namespace

ShmToken RandomToken() {
  std::random_device random;
  ShmToken token;
  for (uint64_t& half : token) half = (uint64_t{random()} << 32) | random();
  return token;
}

absl::StatusOr<ShmSegment> ShmSegment::Create(const std::string& folder, const std::string& job) {
  const std::string name = NewName(job);
  const std::string path = absl::StrCat(folder, "/", name);
  FileDescriptor file(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.is_open()) return Failed(absl::StrCat("create a file in ", folder));
  const int error = posix_fallocate(file.get(), 0, kSegmentBytes);
  if (error != 0)
    return StatusFromErrno(error, absl::StrCat("take ", kSegmentBytes, " bytes of ", folder));
  PUSHPULL_ASSIGN_OR_RETURN(const std::span<std::byte> memory, Map(file.get(), path));
  ShmSegment segment(memory);
  segment.offer_ = {.name = name, .token = RandomToken()};
  segment.proof_ = RandomToken();
  std::memcpy(memory.data(), segment.offer_.token.data(), sizeof(ShmToken));
  std::memcpy(memory.data() + sizeof(ShmToken), segment.proof_.data(), sizeof(ShmToken));
  PUSHPULL_RETURN_IF_ERROR(GiveName(file.get(), path));
  segment.path_ = path;
  segment.owned_ = std::move(file);
  return segment;
}

absl::StatusOr<ShmSegment> ShmSegment::Attach(const std::string& folder, const ShmOffer& offer) {
  if (!IsSegmentName(offer.name))
    return absl::InvalidArgumentError(
        absl::StrCat("\"", offer.name, "\" is not the name of a segment"));
  const std::string path = absl::StrCat(folder, "/", offer.name);
  // The path may be anything: do not follow a link, do not wait for a pipe.
  const FileDescriptor file(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open()) return Failed(absl::StrCat("open ", path));
  PUSHPULL_RETURN_IF_ERROR(CheckAllocated(file.get(), path));
  PUSHPULL_ASSIGN_OR_RETURN(const std::span<std::byte> memory, Map(file.get(), path));
  ShmSegment segment(memory);
  segment.offer_.name = offer.name;
  std::memcpy(segment.offer_.token.data(), memory.data(), sizeof(ShmToken));
  std::memcpy(segment.proof_.data(), memory.data() + sizeof(ShmToken), sizeof(ShmToken));
  if (segment.offer_.token != offer.token)
    return absl::PermissionDeniedError(
        absl::StrCat(path, " does not belong to the peer that offers it"));
  segment.path_ = path;
  segment.Unlink();
  return segment;
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : memory_(std::exchange(other.memory_, {})),
      offer_(std::move(other.offer_)),
      proof_(other.proof_),
      path_(std::exchange(other.path_, {})),
      owned_(std::move(other.owned_)) {}

ShmSegment::~ShmSegment() {
  Unlink();
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

std::string ShmSegment::NamePrefix() const {
  return offer_.name.substr(0, offer_.name.size() - kDigits);
}

void ShmSegment::Unlink() {
  // The other end may have removed it first.
  if (!path_.empty()) unlink(std::exchange(path_, {}).c_str());
  owned_.Reset();
}

std::span<std::byte> ShmSegment::Outgoing(ShmSide side) const {
  const size_t index = side == ShmSide::kConnecting ? 0 : 1;
  return memory_.subspan(kTokensBytes + index * kPayloadRingBytes, kPayloadRingBytes);
}

std::span<std::byte> ShmSegment::Incoming(ShmSide side) const {
  return Outgoing(side == ShmSide::kConnecting ? ShmSide::kAccepting : ShmSide::kConnecting);
}

ShmFolder::ShmFolder(std::string path, std::string job, const Log& log)
    : path_(std::move(path)), job_(std::move(job)), log_(log) {
  SweepSegments(path_);
}

void ShmFolder::WarnOnce(const std::string& peer, const absl::Status& why) const {
  if (has_warned_.exchange(true)) return;
  log_.Warning("a peer on this host is reached over a socket, not over shared memory",
               {{"peer", peer},
                {"why", why.message()},
                {"help",
                 absl::StrFormat("give both ends the same %s with room in it, or set %s=tcp",
                                 kShmFolderVariable,
                                 kChannelVariable)}});
}

std::unique_ptr<ShmFolder> OpenShmFolder(const std::string& path,
                                         const std::string& job,
                                         const Log& log) {
  return path.empty() ? nullptr : std::make_unique<ShmFolder>(path, job, log);
}

}  // namespace pushpull
