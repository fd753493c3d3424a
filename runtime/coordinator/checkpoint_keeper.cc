// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/checkpoint_keeper.h"

#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// In the folder of the job's checkpoints: a number in decimal.
constexpr char kNote[] = ".step";
constexpr char kUnfinished[] = ".new";
constexpr uint64_t kNoteBytesMax = 32;

absl::Status Write(FileSystem& files, SaveManifest& command) {
  command.manifest.written_at = std::chrono::duration_cast<std::chrono::seconds>(
                                    std::chrono::system_clock::now().time_since_epoch())
                                    .count();
  PUSHPULL_RETURN_IF_ERROR(AddFiles(command.files, command.manifest));
  return WriteManifest(files, command.folder, command.manifest);
}

absl::Status WriteAndRemove(FileSystem& files, const std::string& folder) {
  const std::string path = JoinPath(folder, ".writable");
  const std::array<std::byte, 1> byte = {};
  const std::array<std::span<const std::byte>, 1> buffers = {byte};
  PUSHPULL_RETURN_IF_ERROR(files.CreateFolders(folder));
  {
    PUSHPULL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, files.CreateFile(path));
    PUSHPULL_RETURN_IF_ERROR(file->Append(buffers));
    PUSHPULL_RETURN_IF_ERROR(file->Sync());
  }
  return files.RemoveFile(path);
}

absl::Status WriteNote(FileSystem& files, const NoteStep& note) {
  const std::string path = JoinPath(note.folder, kNote);
  const std::string text = absl::StrCat(note.step.value());
  const std::array<std::span<const std::byte>, 1> buffers = {
      std::as_bytes(std::span<const char>(text))};
  PUSHPULL_RETURN_IF_ERROR(files.CreateFolders(note.folder));
  {
    PUSHPULL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                              files.CreateFile(path + kUnfinished));
    PUSHPULL_RETURN_IF_ERROR(file->Append(buffers));
  }
  return files.Rename(path + kUnfinished, path);
}

bool HasComplete(FileSystem& files, const ClearCheckpoint& command) {
  return !absl::IsNotFound(ReadManifest(files, StepFolder(command.folder, command.step)).status());
}

// The job's checkpoints in a folder, and whether there are any of other jobs.
struct Searched {
  std::optional<LoadedCheckpoint> newest;
  absl::Status damage;  // of one that may be the job's, if `newest` is none
  size_t num_others = 0;
  CheckpointOwner other;  // the owner of the newest of those

  std::string Others(const std::string& folder) const {
    return absl::StrCat(
        folder,
        ": ",
        num_others,
        num_others == 1 ? " checkpoint of another job is" : " checkpoints of other jobs are",
        " passed over, the newest of job ",
        ToString(other),
        "; spec.checkpoint.restoreFrom can name its path");
  }
};

absl::StatusOr<Searched> Search(FileSystem& files,
                                const std::string& folder,
                                const CheckpointOwner& job) {
  Searched searched;
  const absl::StatusOr<std::vector<ListedCheckpoint>> list = ListCheckpoints(files, folder);
  if (absl::IsNotFound(list.status())) return searched;
  PUSHPULL_RETURN_IF_ERROR(list.status());
  for (const ListedCheckpoint& listed : *list) {
    if (IsOfAnother(listed, job)) {
      if (searched.num_others++ == 0) searched.other = *listed.owner;
    } else if (!absl::IsNotFound(listed.status)) {
      searched.damage.Update(listed.status);
    }
  }
  absl::StatusOr<LoadedCheckpoint> newest = LoadNewestComplete(files, folder, job);
  if (absl::IsNotFound(newest.status())) return searched;
  PUSHPULL_RETURN_IF_ERROR(newest.status());
  searched.newest = *std::move(newest);
  return searched;
}

// A job whose checkpoints are all damaged must not silently start from the beginning.
absl::StatusOr<RestoreChoice> FindNewest(FileSystem& files, const CheckpointPlace& place) {
  RestoreChoice choice;
  PUSHPULL_ASSIGN_OR_RETURN(Searched own, Search(files, place.folder, place.job));
  if (own.num_others > 0) choice.said.push_back({false, own.Others(place.folder)});
  choice.checkpoint = std::move(own.newest);
  if (choice.checkpoint) return choice;
  PUSHPULL_RETURN_IF_ERROR(own.damage);
  if (place.root == place.folder) return choice;

  PUSHPULL_ASSIGN_OR_RETURN(Searched before, Search(files, place.root, place.job));
  choice.checkpoint = std::move(before.newest);
  if (choice.checkpoint) {
    choice.said.push_back({false,
                           absl::StrCat("starts from the checkpoint of the version before, ",
                                        choice.checkpoint->folder,
                                        "; new ones go to ",
                                        place.folder)});
    return choice;
  }
  // If other jobs have checkpoints there, a damaged one is not known to be this job's.
  if (before.num_others == 0) PUSHPULL_RETURN_IF_ERROR(before.damage);
  if (!before.damage.ok())
    choice.said.push_back({true, absl::StrCat("passed over: ", before.damage.message())});
  if (before.num_others > 0) choice.said.push_back({false, before.Others(place.root)});
  return choice;
}

absl::StatusOr<LoadedCheckpoint> Load(FileSystem& files, const std::string& folder) {
  LoadedCheckpoint loaded{.folder = folder, .manifest = {}, .skipped = {}};
  PUSHPULL_ASSIGN_OR_RETURN(loaded.manifest, ReadManifest(files, folder));
  return loaded;
}

absl::StatusOr<LoadedCheckpoint> LoadNamed(FileSystem& files,
                                           const CheckpointPlace& place,
                                           const std::string& name) {
  if (name.front() == '/') return Load(files, name);
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  if (absl::c_linear_search(parts, "..")) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.checkpoint.restoreFrom: must not have '..'",
                     " in a path that begins without '/', is ",
                     name));
  }
  if (parts.size() > 1) return Load(files, JoinPath(place.root, name));
  absl::StatusOr<LoadedCheckpoint> own = Load(files, JoinPath(place.folder, name));
  if (!absl::IsNotFound(own.status())) return own;
  absl::StatusOr<LoadedCheckpoint> in_root = Load(files, JoinPath(place.root, name));
  return absl::IsNotFound(in_root.status()) ? own : in_root;
}

}  // namespace

void CheckpointKeeper::Save(SaveManifest command,
                            std::function<void(const absl::Status&, const absl::Status&)> done) {
  const auto held = std::make_shared<SaveManifest>(std::move(command));
  disk_.Post([this, held, done = std::move(done)] {
    const absl::Status written = Write(files_, *held);
    done(written,
         written.ok()
             ? Prune(files_, held->folder, {.job = held->manifest.owner, .keep = held->keep})
             : absl::OkStatus());
  });
}

void CheckpointKeeper::Clear(const ClearCheckpoint& command, std::function<void()> done) {
  disk_.Post([this, command, done = std::move(done)] {
    if (!HasComplete(files_, command))
      RemoveCheckpoint(files_, command.folder, command.step).IgnoreError();
    done();
  });
}

void CheckpointKeeper::Probe(const std::string& folder,
                             std::function<void(const absl::Status&)> done) {
  disk_.Post([this, folder, done = std::move(done)] { done(WriteAndRemove(files_, folder)); });
}

void CheckpointKeeper::Note(const NoteStep& command) {
  // A disk that hangs must not collect them.
  if (is_noting_.exchange(true)) return;
  disk_.Post([this, command] {
    WriteNote(files_, command).IgnoreError();
    is_noting_ = false;
  });
}

Step NotedStep(FileSystem& files, const std::string& folder) {
  const absl::StatusOr<std::vector<std::byte>> bytes =
      ReadWholeFile(files, JoinPath(folder, kNote), kNoteBytesMax);
  if (!bytes.ok()) return Step{};
  const absl::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  uint64_t step = 0;
  return absl::SimpleAtoi(text, &step) ? Step{step} : Step{};
}

absl::StatusOr<RestoreChoice> FindRestore(FileSystem& files,
                                          const CheckpointPlace& place,
                                          const std::string& restore_from) {
  if (restore_from == "latest") return FindNewest(files, place);
  RestoreChoice choice;
  PUSHPULL_ASSIGN_OR_RETURN(choice.checkpoint, LoadNamed(files, place, restore_from));
  const CheckpointManifest& manifest = choice.checkpoint->manifest;
  if (IsSameJob(manifest.owner, place.job)) return choice;
  const std::string& folder = choice.checkpoint->folder;
  if (!absl::StrContains(restore_from, '/')) {
    return absl::InvalidArgumentError(absl::StrCat(folder,
                                                   ": is a checkpoint of job ",
                                                   ToString(manifest.owner),
                                                   ", not of ",
                                                   ToString(place.job),
                                                   "; to start from it, give its path in "
                                                   "spec.checkpoint.restoreFrom"));
  }
  choice.said.push_back({false,
                         absl::StrCat("starts from the checkpoint of job ",
                                      ToString(manifest.owner),
                                      ", step ",
                                      manifest.step.value(),
                                      ": ",
                                      folder)});
  return choice;
}

}  // namespace pushpull
