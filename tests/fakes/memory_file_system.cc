// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/memory_file_system.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/file_system.h"

namespace pushpull {
namespace {

using Inode = MemoryFileSystem::Inode;

std::string FolderOf(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

class MemoryReadableFile final : public ReadableFile {
 public:
  MemoryReadableFile(std::string path, std::shared_ptr<Inode> inode)
      : path_(std::move(path)), inode_(std::move(inode)) {}

  uint64_t num_bytes() const override { return inode_->data.size(); }

  absl::Status ReadAt(uint64_t offset, ReadBuffers buffers) const override {
    for (const std::span<std::byte> buffer : buffers) {
      if (offset + buffer.size() > num_bytes())
        return DamageError(path_, num_bytes(), "the file ends here, too early");
      std::copy_n(inode_->data.data() + offset, buffer.size(), buffer.data());
      offset += buffer.size();
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const std::shared_ptr<Inode> inode_;
};

std::shared_ptr<Inode> Surviving(const Inode& inode, std::mt19937& chance) {
  auto copy = std::make_shared<Inode>(inode);
  const size_t num_unsynced = inode.data.size() - inode.synced_bytes;
  copy->data.resize(inode.synced_bytes + chance() % (num_unsynced + 1));
  if (chance() % 2 == 0) {
    std::fill(copy->data.begin() + static_cast<std::ptrdiff_t>(inode.synced_bytes),
              copy->data.end(),
              std::byte{0});
  }
  copy->synced_bytes = copy->data.size();
  return copy;
}

}  // namespace

class MemoryWritableFile final : public WritableFile {
 public:
  MemoryWritableFile(MemoryFileSystem& file_system, std::shared_ptr<Inode> inode)
      : file_system_(file_system), inode_(std::move(inode)) {}

  absl::Status Append(WriteBuffers buffers) override {
    std::vector<std::byte> bytes;
    for (const std::span<const std::byte> buffer : buffers)
      bytes.insert(bytes.end(), buffer.begin(), buffer.end());
    const bool was_stopped = file_system_.num_operations_ > file_system_.stop_at_;
    absl::Status counted = file_system_.Count();
    if (!counted.ok()) bytes.resize(was_stopped ? 0 : bytes.size() / 2);
    const uint64_t num_free = file_system_.bytes_max_ - file_system_.num_bytes();
    if (bytes.size() > num_free) {
      bytes.resize(num_free);
      counted.Update(absl::ResourceExhaustedError("write: No space left on device"));
    }
    inode_->data.insert(inode_->data.end(), bytes.begin(), bytes.end());
    return counted;
  }

  absl::Status Sync() override {
    PUSHPULL_RETURN_IF_ERROR(file_system_.Count());
    inode_->synced_bytes = inode_->data.size();
    return absl::OkStatus();
  }

 private:
  MemoryFileSystem& file_system_;
  const std::shared_ptr<Inode> inode_;
};

void MemoryFileSystem::FailAt(uint64_t operation, absl::Status status) {
  fail_at_ = operation;
  failure_ = std::move(status);
}

absl::Status MemoryFileSystem::Count() {
  const uint64_t operation = num_operations_++;
  if (operation >= stop_at_) return absl::CancelledError("the process was killed");
  return operation == fail_at_ ? failure_ : absl::OkStatus();
}

uint64_t MemoryFileSystem::num_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [path, inode] : files_) bytes += inode->data.size();
  return bytes;
}

std::vector<std::string> MemoryFileSystem::paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, inode] : files_) paths.push_back(path);
  return paths;
}

MemoryFileSystem MemoryFileSystem::AfterKill() const {
  MemoryFileSystem next;
  next.folders_ = folders_;
  for (const auto& [path, inode] : files_)
    next.files_.emplace(path, std::make_shared<Inode>(*inode));
  next.durable_files_ = next.files_;
  return next;
}

MemoryFileSystem MemoryFileSystem::AfterPowerLoss(std::mt19937& chance) const {
  MemoryFileSystem next;
  next.folders_ = folders_;
  std::set<std::string> all;
  for (const Files* files : {&files_, &durable_files_})
    for (const auto& [path, inode] : *files) all.insert(path);
  for (const std::string& path : all) {
    const Files& chosen = chance() % 2 == 0 ? files_ : durable_files_;
    const auto found = chosen.find(path);
    if (found != chosen.end()) next.files_.emplace(path, Surviving(*found->second, chance));
  }
  next.durable_files_ = next.files_;
  return next;
}

absl::StatusOr<std::unique_ptr<WritableFile>> MemoryFileSystem::CreateFile(
    const std::string& path) {
  PUSHPULL_RETURN_IF_ERROR(Count());
  if (!folders_.contains(FolderOf(path))) return absl::NotFoundError(absl::StrCat("create ", path));
  const auto inode = std::make_shared<Inode>();
  files_[path] = inode;
  return std::make_unique<MemoryWritableFile>(*this, inode);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> MemoryFileSystem::OpenFile(const std::string& path) {
  const auto found = files_.find(path);
  if (found == files_.end()) return absl::NotFoundError(absl::StrCat("open ", path));
  return std::make_unique<MemoryReadableFile>(path, found->second);
}

absl::Status MemoryFileSystem::CreateFolders(const std::string& path) {
  PUSHPULL_RETURN_IF_ERROR(Count());
  for (std::string folder = path; !folder.empty(); folder = FolderOf(folder)) {
    folders_.insert(folder);
    if (folder.find('/') == std::string::npos) break;
  }
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::SyncFolder(const std::string& path) {
  PUSHPULL_RETURN_IF_ERROR(Count());
  if (!folders_.contains(path)) return absl::NotFoundError(absl::StrCat("open folder ", path));
  std::erase_if(durable_files_, [&](const auto& file) { return FolderOf(file.first) == path; });
  for (const auto& [name, inode] : files_) {
    if (FolderOf(name) == path) durable_files_.emplace(name, inode);
  }
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::Rename(const std::string& from, const std::string& to) {
  PUSHPULL_RETURN_IF_ERROR(Count());
  const auto found = files_.find(from);
  if (found == files_.end()) return absl::NotFoundError(absl::StrCat("rename ", from));
  files_[to] = found->second;
  files_.erase(from);
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::RemoveFile(const std::string& path) {
  PUSHPULL_RETURN_IF_ERROR(Count());
  files_.erase(path);
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::RemoveFolder(const std::string& path) {
  PUSHPULL_RETURN_IF_ERROR(Count());
  for (const auto& [name, inode] : files_) {
    if (FolderOf(name) == path)
      return absl::FailedPreconditionError(absl::StrCat("remove folder ", path, ": not empty"));
  }
  folders_.erase(path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FolderEntry>> MemoryFileSystem::ListFolder(const std::string& path) {
  if (!folders_.contains(path)) return absl::NotFoundError(absl::StrCat("list ", path));
  std::vector<FolderEntry> entries;
  for (const auto& [name, inode] : files_) {
    if (FolderOf(name) == path) entries.push_back({.name = name.substr(path.size() + 1)});
  }
  for (const std::string& folder : folders_) {
    if (folder != path && FolderOf(folder) == path)
      entries.push_back({.name = folder.substr(path.size() + 1), .is_folder = true});
  }
  std::sort(entries.begin(), entries.end(), [](const FolderEntry& a, const FolderEntry& b) {
    return a.name < b.name;
  });
  return entries;
}

}  // namespace pushpull
