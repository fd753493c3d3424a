// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr char kFreshManifestName[] = "MANIFEST.new";
constexpr char kStepPrefix[] = "step-";
constexpr size_t kStepDigits = 12;
// The levels between a folder of all jobs and a job's checkpoints.
constexpr int kNamespaceAndJob = 2;

// The step in a folder's name; none for a name that StepFolder does not make.
std::optional<Step> StepOf(const FolderEntry& entry) {
  absl::string_view digits = entry.name;
  uint64_t step = 0;
  if (!entry.is_folder || !absl::ConsumePrefix(&digits, kStepPrefix) ||
      digits.size() < kStepDigits || !absl::SimpleAtoi(digits, &step)) {
    return std::nullopt;
  }
  return Step{step};
}

// Whether it may be named after a namespace or a job, unlike lost+found.
bool MayBeOfJobs(const FolderEntry& entry) {
  return entry.is_folder && !StepOf(entry) && absl::c_all_of(entry.name, [](unsigned char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
         });
}

// Checks that all sizes match the manifest.
absl::Status CheckFileSizes(FileSystem& file_system,
                            const std::string& folder,
                            const CheckpointManifest& manifest) {
  for (const CheckpointFile& file : manifest.files) {
    const std::string path = JoinPath(folder, file.name);
    const absl::StatusOr<std::unique_ptr<ReadableFile>> opened = file_system.OpenFile(path);
    if (absl::IsNotFound(opened.status()))
      return DamageError(path, 0, "the manifest names this file, and it is not there");
    PUSHPULL_RETURN_IF_ERROR(opened.status());
    const uint64_t bytes = (*opened)->num_bytes();
    if (bytes != file.bytes) {
      return DamageError(path,
                         std::min(bytes, file.bytes),
                         absl::StrCat("has ", bytes, " bytes, expected ", file.bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteWhole(FileSystem& file_system,
                        const std::string& path,
                        std::span<const std::byte> bytes) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, file_system.CreateFile(path));
  PUSHPULL_RETURN_IF_ERROR(file->Append(std::array{bytes}));
  return file->Sync();
}

// Checks that the step has no checkpoint, or one that this job may replace.
absl::Status CheckIsFree(FileSystem& file_system,
                         const std::string& folder,
                         const CheckpointOwner& job) {
  const std::string path = JoinPath(folder, kManifestName);
  const auto bytes = ReadWholeFile(file_system, path, kManifestBytesMax);
  if (!bytes.ok()) return absl::OkStatus();
  const absl::StatusOr<CheckpointManifest> there = DecodeManifest(*bytes, path);
  if (!there.ok() || IsSameJob(there->owner, job)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(folder,
                                                    ": is a checkpoint of job ",
                                                    ToString(there->owner),
                                                    ", not of ",
                                                    ToString(job),
                                                    "; move it elsewhere"));
}

// The highest sequence in `dir`; unreadable checkpoints have none.
absl::StatusOr<uint64_t> HighestSequence(FileSystem& file_system, const std::string& dir) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<FolderEntry> entries, file_system.ListFolder(dir));
  uint64_t highest = 0;
  for (const FolderEntry& entry : entries) {
    if (!StepOf(entry)) continue;
    const std::string path = JoinPath(JoinPath(dir, entry.name), kManifestName);
    const absl::StatusOr<std::unique_ptr<ReadableFile>> file = file_system.OpenFile(path);
    std::array<std::byte, kManifestHeaderBytes> bytes;
    if (!file.ok() || !(*file)->ReadAt(0, std::array{std::span<std::byte>(bytes)}).ok()) continue;
    const absl::StatusOr<ManifestHeader> header = DecodeManifestHeader(bytes, path);
    if (header.ok()) highest = std::max(highest, header->sequence);
  }
  return highest;
}

ListedCheckpoint Describe(FileSystem& file_system, const std::string& folder, Step step) {
  ListedCheckpoint listed{.step = step, .folder = folder};
  const std::string path = JoinPath(folder, kManifestName);
  const absl::StatusOr<std::vector<std::byte>> bytes =
      ReadWholeFile(file_system, path, kManifestBytesMax);
  if (absl::IsNotFound(bytes.status())) {
    listed.status = absl::NotFoundError(
        absl::StrCat(folder, ": has no manifest: the save was interrupted or is under way"));
    return listed;
  }
  if (!bytes.ok()) {
    listed.status = bytes.status();
    return listed;
  }
  if (const auto header = DecodeManifestHeader(*bytes, path); header.ok())
    listed.sequence = header->sequence;
  const absl::StatusOr<CheckpointManifest> manifest = DecodeManifest(*bytes, path);
  listed.status = manifest.status();
  if (!manifest.ok()) return listed;
  listed.owner = manifest->owner;
  listed.status = CheckFileSizes(file_system, folder, *manifest);
  if (!listed.status.ok()) return listed;
  listed.mode = manifest->mode;
  listed.written_at = manifest->written_at;
  listed.num_tensors = manifest->tensors.size();
  listed.num_chunks = manifest->chunks.size();
  for (const CheckpointFile& file : manifest->files) listed.file_bytes += file.bytes;
  return listed;
}

// Removes all files of `folder` for which `is_wanted` is false. Continues after an error and
// returns the first.
template <typename Wanted>
absl::Status RemoveFiles(FileSystem& file_system, const std::string& folder, Wanted is_wanted) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<FolderEntry> entries, file_system.ListFolder(folder));
  absl::Status first;
  for (const FolderEntry& entry : entries) {
    if (entry.is_folder || is_wanted(entry.name)) continue;
    first.Update(file_system.RemoveFile(JoinPath(folder, entry.name)));
  }
  return first;
}

absl::Status RemoveFolder(FileSystem& file_system, const std::string& folder) {
  PUSHPULL_RETURN_IF_ERROR(file_system.RemoveFile(JoinPath(folder, kManifestName)));
  // Before any file is removed: a manifest that reappeared after a power loss would name them.
  const absl::Status synced = file_system.SyncFolder(folder);
  if (absl::IsNotFound(synced)) return absl::OkStatus();
  PUSHPULL_RETURN_IF_ERROR(synced);
  PUSHPULL_RETURN_IF_ERROR(
      RemoveFiles(file_system, folder, [](const std::string&) { return false; }));
  return file_system.RemoveFolder(folder);
}

// Removes what an earlier attempt of the same step, or an interrupted WriteManifest, has left.
absl::Status RemoveStrayFiles(FileSystem& file_system, const std::string& folder) {
  PUSHPULL_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ReadManifest(file_system, folder));
  absl::flat_hash_set<absl::string_view> named;
  for (const CheckpointFile& file : manifest.files) named.insert(file.name);
  return RemoveFiles(file_system, folder, [&named](const std::string& name) {
    const bool is_ours = absl::EndsWith(name, ".chunks") || name == kFreshManifestName;
    return !is_ours || named.contains(name);
  });
}

// Whether it will never be completed, and nobody needs it.
bool IsNotACheckpoint(const ListedCheckpoint& listed) {
  return absl::IsNotFound(listed.status) || absl::IsDataLoss(listed.status);
}

}  // namespace

absl::Status WriteManifest(FileSystem& file_system,
                           const std::string& dir,
                           CheckpointManifest& manifest) {
  PUSHPULL_RETURN_IF_ERROR(CheckManifest(manifest));
  const std::string folder = StepFolder(dir, manifest.step);
  PUSHPULL_RETURN_IF_ERROR(CheckIsFree(file_system, folder, manifest.owner));
  PUSHPULL_RETURN_IF_ERROR(file_system.CreateFolders(folder));
  const absl::Status files = CheckFileSizes(file_system, folder, manifest);
  if (absl::IsDataLoss(files)) {
    return absl::FailedPreconditionError(absl::StrCat(
        files.message(), "; servers and coordinator must write to one folder that they share"));
  }
  PUSHPULL_RETURN_IF_ERROR(files);
  PUSHPULL_ASSIGN_OR_RETURN(const uint64_t highest, HighestSequence(file_system, dir));
  manifest.sequence = highest + 1;
  const std::string fresh = JoinPath(folder, kFreshManifestName);
  absl::Status written = WriteWhole(file_system, fresh, EncodeManifest(manifest));
  if (written.ok()) written = file_system.Rename(fresh, JoinPath(folder, kManifestName));
  if (!written.ok()) {
    file_system.RemoveFile(fresh).IgnoreError();  // only to free its space
    return written;
  }
  return file_system.SyncFolder(folder);
}

absl::StatusOr<CheckpointManifest> ReadManifest(FileSystem& file_system,
                                                const std::string& folder) {
  const std::string path = JoinPath(folder, kManifestName);
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                            ReadWholeFile(file_system, path, kManifestBytesMax));
  PUSHPULL_ASSIGN_OR_RETURN(CheckpointManifest manifest, DecodeManifest(bytes, path));
  PUSHPULL_RETURN_IF_ERROR(CheckFileSizes(file_system, folder, manifest));
  return manifest;
}

absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(FileSystem& file_system,
                                                              const std::string& dir) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<FolderEntry> entries, file_system.ListFolder(dir));
  std::vector<ListedCheckpoint> list;
  list.reserve(entries.size());
  for (const FolderEntry& entry : entries) {
    const std::optional<Step> step = StepOf(entry);
    if (step) list.push_back(Describe(file_system, JoinPath(dir, entry.name), *step));
  }
  std::ranges::sort(list, std::greater<>(), [](const ListedCheckpoint& listed) {
    return std::pair(listed.sequence, listed.step);
  });
  return list;
}

absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpointsBelow(FileSystem& file_system,
                                                                   const std::string& dir) {
  std::vector<ListedCheckpoint> list;
  std::vector<std::string> level = {dir};
  for (int depth = 0; depth <= kNamespaceAndJob; ++depth) {
    std::vector<std::string> below;
    for (const std::string& folder : level) {
      PUSHPULL_ASSIGN_OR_RETURN(std::vector<ListedCheckpoint> here,
                                ListCheckpoints(file_system, folder));
      std::ranges::move(here, std::back_inserter(list));
      PUSHPULL_ASSIGN_OR_RETURN(const std::vector<FolderEntry> entries,
                                file_system.ListFolder(folder));
      for (const FolderEntry& entry : entries)
        if (MayBeOfJobs(entry)) below.push_back(JoinPath(folder, entry.name));
    }
    level = std::move(below);
  }
  return list;
}

bool IsOfAnother(const ListedCheckpoint& listed, const CheckpointOwner& job) {
  return listed.owner && !IsSameJob(*listed.owner, job);
}

absl::StatusOr<LoadedCheckpoint> LoadNewestComplete(FileSystem& file_system,
                                                    const std::string& dir,
                                                    const CheckpointOwner& job) {
  PUSHPULL_ASSIGN_OR_RETURN(std::vector<ListedCheckpoint> list, ListCheckpoints(file_system, dir));
  std::erase_if(list, [&job](const ListedCheckpoint& listed) { return IsOfAnother(listed, job); });
  for (const ListedCheckpoint& listed : list) {
    const bool is_readable =
        listed.status.ok() || IsNotACheckpoint(listed) || absl::IsUnimplemented(listed.status);
    if (!is_readable) return listed.status;
  }
  LoadedCheckpoint loaded;
  bool is_found = false;
  for (ListedCheckpoint& listed : list) {
    if (!is_found && absl::IsUnimplemented(listed.status)) return listed.status;
    if (!is_found && listed.status.ok()) {
      PUSHPULL_ASSIGN_OR_RETURN(loaded.manifest, ReadManifest(file_system, listed.folder));
      loaded.folder = listed.folder;
      is_found = true;
    } else if (IsNotACheckpoint(listed)) {
      loaded.skipped.push_back(std::move(listed));
    }
  }
  if (is_found) return loaded;
  return absl::NotFoundError(absl::StrCat(
      dir,
      ": has no complete checkpoint of job ",
      ToString(job),
      loaded.skipped.empty()
          ? ""
          : absl::StrCat(", but ", std::string(loaded.skipped.front().status.message()))));
}

absl::Status RemoveCheckpoint(FileSystem& file_system, const std::string& dir, Step step) {
  return RemoveFolder(file_system, StepFolder(dir, step));
}

absl::Status Prune(FileSystem& file_system, const std::string& dir, const PruneOptions& options) {
  PUSHPULL_ASSIGN_OR_RETURN(std::vector<ListedCheckpoint> list, ListCheckpoints(file_system, dir));
  std::erase_if(list, [&options](const ListedCheckpoint& listed) {
    return IsOfAnother(listed, options.job);
  });
  // Attempts at lower steps than this are over.
  std::optional<Step> reached = options.writing;
  for (const ListedCheckpoint& listed : list) {
    if (listed.status.ok()) reached = std::max(reached, std::optional(listed.step));
  }
  absl::Status first;
  size_t num_complete = 0;
  for (const ListedCheckpoint& listed : list) {
    const bool is_complete = listed.status.ok();
    const bool is_kept = is_complete && ++num_complete <= std::max<size_t>(options.keep, 1);
    if (listed.step == options.writing) continue;
    if (is_kept) {
      first.Update(RemoveStrayFiles(file_system, listed.folder));
    } else if (is_complete || (IsNotACheckpoint(listed) && listed.step < reached)) {
      first.Update(RemoveFolder(file_system, listed.folder));
    }
  }
  return first;
}

}  // namespace pushpull
