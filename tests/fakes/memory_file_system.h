// SPDX-License-Identifier: Apache-2.0
//
// Files in memory that know what a crash leaves behind: after the death of the process everything
// that was done, after a loss of power at least what was synced. Each operation that changes
// something has a number, at which it can be made to fail, or everything to stop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/file_system.h"

namespace pushpull {

// Thread-confined.
class MemoryFileSystem final : public FileSystem {
 public:
  struct Inode {
    std::vector<std::byte> data;
    size_t synced_bytes = 0;
  };

  // The operation of this number, counted from 0 over the whole life, and all that follow, do
  // nothing, except that an append that is hit writes its first half: the process was killed.
  void StopAt(uint64_t operation) { stop_at_ = operation; }
  // The operation of this number fails with `status`, an append after its first half.
  void FailAt(uint64_t operation, absl::Status status);
  // Appends fail, after what fits, when all files together have so many bytes.
  void LimitBytes(uint64_t bytes) { bytes_max_ = bytes; }

  uint64_t num_operations() const { return num_operations_; }
  uint64_t num_bytes() const;
  bool Exists(const std::string& path) const { return files_.contains(path); }
  // The file must exist.
  std::vector<std::byte>& contents(const std::string& path) { return files_.at(path)->data; }
  std::vector<std::string> paths() const;

  // What the next process finds when this one was killed.
  MemoryFileSystem AfterKill() const;
  // What it finds after a loss of power: of what was not synced some survives at random, and what
  // is there of a file may be zeros.
  MemoryFileSystem AfterPowerLoss(std::mt19937& chance) const;

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) override;
  absl::Status CreateFolders(const std::string& path) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveFolder(const std::string& path) override;
  absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& path) override;

 private:
  friend class MemoryWritableFile;
  using Files = std::map<std::string, std::shared_ptr<Inode>>;

  // Counts an operation; not OK: it must not be done.
  absl::Status Count();

  Files files_;
  Files durable_files_;
  std::set<std::string> folders_;  // durable at once, as CreateFolders promises
  uint64_t num_operations_ = 0;
  uint64_t stop_at_ = UINT64_MAX;
  uint64_t fail_at_ = UINT64_MAX;
  uint64_t bytes_max_ = UINT64_MAX;
  absl::Status failure_;
};

}  // namespace pushpull
