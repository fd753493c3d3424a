// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file_descriptor.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace pushpull {

void FileDescriptor::Reset() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
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
