// SPDX-License-Identifier: Apache-2.0
//
// The few file operations that checkpoints are built from. Their order alone decides what a crash
// leaves behind, so a test can stop after each of them (tests/fakes). All of them block on the
// disk, without a deadline: POSIX has none for files. Callers run them on a thread that may wait,
// never on an event loop.
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

// The most buffers in one call.
inline constexpr size_t kFileBuffersMax = 8;

// A file being written from its start. The destructor closes it. Thread-confined to its user.
class WritableFile {
 public:
  virtual ~WritableFile() = default;

  // Appends the buffers in order, without a copy. After an error any part of them may have been
  // written.
  //
  // kResourceExhausted: the limit of the disk, the quota or the file size is reached. kUnavailable:
  // any other device error.
  virtual absl::Status Append(WriteBuffers buffers) = 0;

  // Returns once all that was appended survives a power loss. Errors as for Append; after one the
  // file is lost, because a second call may succeed without having written anything.
  virtual absl::Status Sync() = 0;
};

// A file open for reading. Thread-compatible.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  // As of when it was opened.
  virtual uint64_t num_bytes() const = 0;

  // Fills the buffers, in order, from `offset` on. kDataLoss: the file ends before they are full;
  // the text has file and offset. kUnavailable: the device cannot be read.
  virtual absl::Status ReadAt(uint64_t offset, ReadBuffers buffers) const = 0;
};

struct FolderEntry {
  std::string name;
  bool is_folder = false;
};

// Errors are those of StatusFromErrno (runtime/base/file_descriptor.h); texts name the call and the
// path.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A new, empty file. An existing file of that name is removed first, so that a process still
  // writing to it cannot affect the new one.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) = 0;
  // kNotFound: there is none.
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) = 0;
  // Creates parents too; OK if the folder exists. It survives a power loss once this returns.
  virtual absl::Status CreateFolders(const std::string& path) = 0;
  // Returns once creations, renames and removals in the folder survive a power loss. Does nothing
  // if the file system has no such call for folders.
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  // Replaces `to` atomically.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Both are OK if nothing has that name. A folder must be empty.
  virtual absl::Status RemoveFile(const std::string& path) = 0;
  virtual absl::Status RemoveFolder(const std::string& path) = 0;
  // Sorted by name. kNotFound: there is no such folder.
  virtual absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& path) = 0;
};

// Any POSIX directory. Stateless, so thread-safe.
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

// How every reader of a checkpoint reports where a file is damaged: in the text, and as a number
// for programs that print it. kDataLoss "FILE at byte OFFSET: WHAT".
absl::Status DamageError(const std::string& file, uint64_t offset, absl::string_view what);

// The offset of a status made by DamageError; none for any other.
std::optional<uint64_t> DamageOffset(const absl::Status& status);

// The contents of a file. kDataLoss: more than `bytes_max`. Other errors as for OpenFile and
// ReadAt.
absl::StatusOr<std::vector<std::byte>> ReadWholeFile(FileSystem& file_system,
                                                     const std::string& path,
                                                     uint64_t bytes_max);

// "folder/name".
std::string JoinPath(const std::string& folder, const std::string& name);

}  // namespace pushpull
