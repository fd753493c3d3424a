// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file_descriptor.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace pushpull {

namespace {

// Which numbers are held by a FileDescriptor; those above the bound are not followed. Static, so
// that a forked process can read it whatever other threads were doing.
constexpr int kFollowedMax = 1 << 16;
std::array<std::atomic<bool>, kFollowedMax> is_held;

void SetHeld(int fd, bool held) {
  if (fd >= 0 && fd < kFollowedMax)
    is_held[static_cast<size_t>(fd)].store(held, std::memory_order_relaxed);
}

}  // namespace

FileDescriptor::FileDescriptor(int fd) : fd_(fd) {
  SetHeld(fd_, true);
}

int FileDescriptor::Release() {
  SetHeld(fd_, false);
  return std::exchange(fd_, -1);
}

void FileDescriptor::Reset() {
  const int fd = Release();  // before the number is free for others
  if (fd >= 0) close(fd);
}

void CloseDescriptorsOfParent() {
  for (int fd = 0; fd < kFollowedMax; ++fd) {
    if (!is_held[static_cast<size_t>(fd)].load(std::memory_order_relaxed)) continue;
    SetHeld(fd, false);
    close(fd);
  }
}

absl::Status StatusFromErrno(int error, absl::string_view what) {
  const std::string text =
      absl::StrCat(what, ": ", std::error_code(error, std::generic_category()).message());
  switch (error) {
    case EADDRINUSE:
    case EEXIST:
      return absl::AlreadyExistsError(text);
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(text);
    case EINVAL:
      return absl::InvalidArgumentError(text);
    case ETIMEDOUT:
      return absl::DeadlineExceededError(text);
    default:
      return absl::UnavailableError(text);
  }
}

}  // namespace pushpull
