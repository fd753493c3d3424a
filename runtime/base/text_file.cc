// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"

#include "runtime/base/file_descriptor.h"

namespace pushpull {
namespace {

constexpr size_t kBytesMax = size_t{1} << 20;

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& file) {
  // Non-blocking: opening a pipe in place of the file must not hang.
  const FileDescriptor fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) return StatusFromErrno(errno, absl::StrCat("open ", file));
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t count = read(fd.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return StatusFromErrno(errno, absl::StrCat("read ", file));
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(count));
    if (text.size() > kBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": has more than 1 MiB"));
    }
  }
}

}  // namespace pushpull
