// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file_descriptor.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

bool IsOpen(int fd) {
  return fcntl(fd, F_GETFD) >= 0;
}

int Open() {
  return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

TEST(FileDescriptorTest, ClosesWhenDestroyed) {
  const int fd = Open();

  { const FileDescriptor owner(fd); }

  EXPECT_FALSE(IsOpen(fd));
}

TEST(FileDescriptorTest, AForkedProcessClosesWhatItsParentHolds) {
  const FileDescriptor held(Open());
  FileDescriptor released(Open());
  const int other = released.Release();
  FileDescriptor moved(Open());
  const FileDescriptor to = std::move(moved);

  const pid_t child = fork();
  if (child == 0) {
    CloseDescriptorsOfParent();
    _exit(!IsOpen(held.get()) && !IsOpen(to.get()) && IsOpen(other) ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);

  EXPECT_EQ(status, 0);
  EXPECT_TRUE(IsOpen(held.get()) && IsOpen(to.get()));
  close(other);
}

TEST(FileDescriptorTest, MovesItsOwnership) {
  const int first = Open();
  const int second = Open();
  FileDescriptor from(first);
  FileDescriptor to(second);

  to = std::move(from);

  EXPECT_EQ(to.get(), first);
  EXPECT_TRUE(IsOpen(first));
  EXPECT_FALSE(IsOpen(second));
  FileDescriptor constructed(std::move(to));
  EXPECT_EQ(constructed.get(), first);
  EXPECT_TRUE(constructed.is_open());
}

TEST(FileDescriptorTest, ReleasesWithoutClosing) {
  const int fd = Open();

  {
    FileDescriptor owner(fd);
    EXPECT_EQ(owner.Release(), fd);
    EXPECT_FALSE(owner.is_open());
  }

  EXPECT_TRUE(IsOpen(fd));
  close(fd);
}

TEST(FileDescriptorTest, ResettingTwiceClosesOnce) {
  FileDescriptor owner(Open());

  owner.Reset();
  owner.Reset();

  EXPECT_FALSE(owner.is_open());
}

TEST(StatusFromErrnoTest, MapsEachErrorToItsCode) {
  using absl::StatusCode;
  const std::vector<std::pair<int, StatusCode>> table{{EADDRINUSE, StatusCode::kAlreadyExists},
                                                      {EEXIST, StatusCode::kAlreadyExists},
                                                      {ENOENT, StatusCode::kNotFound},
                                                      {ENOTDIR, StatusCode::kNotFound},
                                                      {EACCES, StatusCode::kPermissionDenied},
                                                      {EPERM, StatusCode::kPermissionDenied},
                                                      {EMFILE, StatusCode::kResourceExhausted},
                                                      {ENFILE, StatusCode::kResourceExhausted},
                                                      {ENOMEM, StatusCode::kResourceExhausted},
                                                      {ENOSPC, StatusCode::kResourceExhausted},
                                                      {EDQUOT, StatusCode::kResourceExhausted},
                                                      {EFBIG, StatusCode::kResourceExhausted},
                                                      {EINVAL, StatusCode::kInvalidArgument},
                                                      {ETIMEDOUT, StatusCode::kDeadlineExceeded},
                                                      {ECONNREFUSED, StatusCode::kUnavailable},
                                                      {ECONNRESET, StatusCode::kUnavailable},
                                                      {EPIPE, StatusCode::kUnavailable},
                                                      {EHOSTUNREACH, StatusCode::kUnavailable},
                                                      {EADDRNOTAVAIL, StatusCode::kUnavailable}};
  for (const auto& [error, code] : table) {
    EXPECT_EQ(StatusFromErrno(error, "call").code(), code) << error;
  }
}

TEST(StatusFromErrnoTest, TheTextNamesTheCallAndTheReason) {
  const absl::Status status = StatusFromErrno(EADDRINUSE, "bind 127.0.0.1:7171");

  EXPECT_EQ(std::string(status.message()), "bind 127.0.0.1:7171: Address already in use");
}

}  // namespace
}  // namespace pushpull
