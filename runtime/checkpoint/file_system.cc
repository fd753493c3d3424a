// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr char kOffsetPayload[] = "pushpull.dev/offset";

absl::Status PathError(int error, absl::string_view call, const std::string& path) {
  return StatusFromErrno(error, absl::StrCat(call, " ", path));
}

// The rest of a list of buffers while the system reads or fills it part by part.
class VectorCursor {
 public:
  template <typename Buffers>
  explicit VectorCursor(const Buffers& buffers) {
    PUSHPULL_CHECK(buffers.size() <= kFileBuffersMax);
    for (const auto& buffer : buffers) {
      if (buffer.empty()) continue;
      // iovec has no const; writev only reads.
      vectors_[end_++] = {const_cast<std::byte*>(buffer.data()), buffer.size()};
    }
  }

  bool is_done() const { return begin_ == end_; }
  const iovec* data() const { return &vectors_[begin_]; }
  int size() const { return static_cast<int>(end_ - begin_); }

  void Advance(size_t num_bytes) {
    while (num_bytes > 0) {
      iovec& first = vectors_[begin_];
      const size_t taken = std::min(num_bytes, first.iov_len);
      first.iov_base = static_cast<std::byte*>(first.iov_base) + taken;
      first.iov_len -= taken;
      num_bytes -= taken;
      if (first.iov_len == 0) ++begin_;
    }
  }

 private:
  std::array<iovec, kFileBuffersMax> vectors_{};
  size_t begin_ = 0;
  size_t end_ = 0;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  absl::Status Append(WriteBuffers buffers) override {
    for (VectorCursor cursor(buffers); !cursor.is_done();) {
      const ssize_t written = writev(file_.get(), cursor.data(), cursor.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        return PathError(errno, "write", path_);
      }
      cursor.Advance(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    return fsync(file_.get()) == 0 ? absl::OkStatus() : PathError(errno, "fsync", path_);
  }

 private:
  const std::string path_;
  const FileDescriptor file_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(std::string path, FileDescriptor file, uint64_t num_bytes)
      : path_(std::move(path)), file_(std::move(file)), num_bytes_(num_bytes) {}

  uint64_t num_bytes() const override { return num_bytes_; }

  absl::Status ReadAt(uint64_t offset, ReadBuffers buffers) const override {
    for (VectorCursor cursor(buffers); !cursor.is_done();) {
      const ssize_t got =
          preadv(file_.get(), cursor.data(), cursor.size(), static_cast<off_t>(offset));
      if (got < 0) {
        if (errno == EINTR) continue;
        return PathError(errno, "read", path_);
      }
      if (got == 0) return DamageError(path_, offset, "the file ends here, too early");
      cursor.Advance(static_cast<size_t>(got));
      offset += static_cast<uint64_t>(got);
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const FileDescriptor file_;
  const uint64_t num_bytes_;
};

}  // namespace

absl::Status DamageError(const std::string& file, uint64_t offset, absl::string_view what) {
  absl::Status status = absl::DataLossError(absl::StrCat(file, " at byte ", offset, ": ", what));
  status.SetPayload(kOffsetPayload, absl::Cord(absl::StrCat(offset)));
  return status;
}

std::optional<uint64_t> DamageOffset(const absl::Status& status) {
  const auto payload = status.GetPayload(kOffsetPayload);
  uint64_t offset = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &offset)) return std::nullopt;
  return offset;
}

std::string JoinPath(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, "/", name);
}

absl::StatusOr<std::vector<std::byte>> ReadWholeFile(FileSystem& file_system,
                                                     const std::string& path,
                                                     uint64_t bytes_max) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, file_system.OpenFile(path));
  if (file->num_bytes() > bytes_max) {
    return DamageError(
        path, bytes_max, absl::StrCat("has ", file->num_bytes(), " bytes, more than there can be"));
  }
  std::vector<std::byte> bytes(file->num_bytes());
  PUSHPULL_RETURN_IF_ERROR(file->ReadAt(0, std::array{std::span<std::byte>(bytes)}));
  return bytes;
}

absl::StatusOr<std::unique_ptr<WritableFile>> PosixFileSystem::CreateFile(const std::string& path) {
  PUSHPULL_RETURN_IF_ERROR(RemoveFile(path));
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.is_open()) return PathError(errno, "create", path);
  return std::make_unique<PosixWritableFile>(path, std::move(file));
}

absl::StatusOr<std::unique_ptr<ReadableFile>> PosixFileSystem::OpenFile(const std::string& path) {
  // Without O_NONBLOCK, a FIFO of that name would block forever.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return PathError(errno, "open", path);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return PathError(errno, "stat", path);
  if (!S_ISREG(info.st_mode))
    return absl::DataLossError(absl::StrCat("open ", path, ": is no plain file"));
  return std::make_unique<PosixReadableFile>(
      path, std::move(file), static_cast<uint64_t>(info.st_size));
}

absl::Status PosixFileSystem::CreateFolders(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return absl::OkStatus();
  const std::filesystem::path above = std::filesystem::path(path).parent_path();
  const std::string parent = above.empty() ? "." : above.string();
  if (parent != path) PUSHPULL_RETURN_IF_ERROR(CreateFolders(parent));
  // Another server may have created it first.
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST)
    return PathError(errno, "create folder", path);
  if (!std::filesystem::is_directory(path, error)) return PathError(ENOTDIR, "create folder", path);
  return SyncFolder(parent);
}

absl::Status PosixFileSystem::SyncFolder(const std::string& path) {
  const FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) return PathError(errno, "open folder", path);
  // Some network file systems do not support this; they write metadata at once.
  if (fsync(folder.get()) == 0 || errno == EINVAL || errno == ENOTSUP) return absl::OkStatus();
  return PathError(errno, "fsync folder", path);
}

absl::Status PosixFileSystem::Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return PathError(errno, absl::StrCat("rename ", from, " to"), to);
}

absl::Status PosixFileSystem::RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return PathError(errno, "remove", path);
}

absl::Status PosixFileSystem::RemoveFolder(const std::string& path) {
  if (rmdir(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return PathError(errno, "remove folder", path);
}

absl::StatusOr<std::vector<FolderEntry>> PosixFileSystem::ListFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::directory_iterator iterator(path, error);
  if (error) return PathError(error.value(), "list", path);
  std::vector<FolderEntry> entries;
  for (; iterator != std::filesystem::directory_iterator(); iterator.increment(error)) {
    std::error_code gone;
    entries.push_back(
        {.name = iterator->path().filename().string(), .is_folder = iterator->is_directory(gone)});
    if (error) break;
  }
  if (error) return PathError(error.value(), "list", path);
  std::ranges::sort(entries, {}, &FolderEntry::name);
  return entries;
}

}  // namespace pushpull
