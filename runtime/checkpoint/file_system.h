// SPDX-License-Identifier: Apache-2.0
//
// The few operations on files that checkpoints are made of. What a crash leaves behind is decided
// by the order of exactly these, so a test can stop after each of them (tests/fakes). All of them
// block on the disk, without a deadline: POSIX has none for files. Callers run them on a thread
// that may wait, never on a loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

using WriteBuffers = std::span<const std::span<const std::byte>>;
using ReadBuffers = std::span<const std::span<std::byte>>;

// The most buffers of one call.
inline constexpr size_t kFileBuffersMax = 8;

// A file being written from its start. Closes in the destructor. Thread-confined to its user.
class WritableFile {
 public:
  virtual ~WritableFile() = default;

  // Appends the buffers in order, written from where they lie. After an error any part of them may
  // be there.
  //
  // kResourceExhausted: disk, quota or the limit of a file's size is reached. kUnavailable: any
  // other error of the device.
  virtual absl::Status Append(WriteBuffers buffers) = 0;

  // Returns when all that was appended survives a loss of power. Errors as Append's; after one the
  // file is lost, for a second call may succeed without having written anything.
  virtual absl::Status Sync() = 0;
};

// A file open for reading. Thread-compatible.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  // When it was opened.
  virtual uint64_t num_bytes() const = 0;

  // Fills the buffers, in order, from `offset` on. kDataLoss: the file ends before they are full;
  // the text has file and offset. kUnavailable: the device cannot be read.
  virtual absl::Status ReadAt(uint64_t offset, ReadBuffers buffers) const = 0;
};

struct FolderEntry {
  std::string name;
  bool is_folder = false;
};

// Errors are those of StatusFromErrno (runtime/base/file_descriptor.h); texts name call and path.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A new and empty file. One of that name that is there is removed first, so whoever still writes
  // to it writes to nobody's file.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) = 0;
  // kNotFound: there is none.
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) = 0;
  // With those above it; fine where it exists. Survives a loss of power when it returns.
  virtual absl::Status CreateFolders(const std::string& path) = 0;
  // Returns when creations, renames and removals in the folder survive a loss of power. Where a
  // file system has no such call for folders, it does nothing.
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  // Replaces `to` in one step.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Both are fine where there is nothing of that name. A folder must be empty.
  virtual absl::Status RemoveFile(const std::string& path) = 0;
  virtual absl::Status RemoveFolder(const std::string& path) = 0;
  // Sorted by name. kNotFound: there is no such folder.
  virtual absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& path) = 0;
};

// Any POSIX directory. Without state: thread-safe.
class PosixFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) override;
  absl::Status CreateFolders(const std::string& path) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveFolder(const std::string& path) override;
  absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& path) override;
};

// How every reader of a checkpoint says where a file is damaged: in the text for people, and as a
// number for those who print it. kDataLoss "FILE at byte OFFSET: WHAT".
absl::Status DamageError(const std::string& file, uint64_t offset, absl::string_view what);

// The offset of a status made by DamageError; nothing for any other.
std::optional<uint64_t> DamageOffset(const absl::Status& status);

// All of a file. kDataLoss: it has more than `bytes_max`. Other errors as OpenFile and ReadAt.
absl::StatusOr<std::vector<std::byte>> ReadWholeFile(FileSystem& file_system,
                                                     const std::string& path,
                                                     uint64_t bytes_max);

// "folder/name".
std::string JoinPath(const std::string& folder, const std::string& name);

}  // namespace pushpull
