// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/checkpoint_keeper.h"

#include <chrono>
#include <memory>
#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

absl::Status Write(FileSystem& files, SaveManifest& command) {
  command.manifest.written_at = std::chrono::duration_cast<std::chrono::seconds>(
                                    std::chrono::system_clock::now().time_since_epoch())
                                    .count();
  PUSHPULL_RETURN_IF_ERROR(AddFiles(command.files, command.manifest));
  return WriteManifest(files, command.folder, command.manifest);
}

bool HasComplete(FileSystem& files, const ClearCheckpoint& command) {
  return !absl::IsNotFound(ReadManifest(files, StepFolder(command.folder, command.step)).status());
}

// A job whose checkpoints are all damaged must not silently start from the beginning.
absl::Status FirstDamage(FileSystem& files, const std::string& folder) {
  const absl::StatusOr<std::vector<ListedCheckpoint>> list = ListCheckpoints(files, folder);
  if (absl::IsNotFound(list.status())) return absl::OkStatus();
  PUSHPULL_RETURN_IF_ERROR(list.status());
  for (const ListedCheckpoint& listed : *list) {
    if (!absl::IsNotFound(listed.status)) PUSHPULL_RETURN_IF_ERROR(listed.status);
  }
  return absl::OkStatus();
}

}  // namespace

void CheckpointKeeper::Save(SaveManifest command,
                            std::function<void(const absl::Status&, const absl::Status&)> done) {
  const auto held = std::make_shared<SaveManifest>(std::move(command));
  disk_.Post([this, held, done = std::move(done)] {
    const absl::Status written = Write(files_, *held);
    done(written,
         written.ok() ? Prune(files_, held->folder, {.keep = held->keep}) : absl::OkStatus());
  });
}

void CheckpointKeeper::Clear(const ClearCheckpoint& command, std::function<void()> done) {
  disk_.Post([this, command, done = std::move(done)] {
    if (!HasComplete(files_, command))
      RemoveCheckpoint(files_, command.folder, command.step).IgnoreError();
    done();
  });
}

absl::StatusOr<std::optional<LoadedCheckpoint>> FindRestore(FileSystem& files,
                                                            const std::string& folder,
                                                            const std::string& restore_from) {
  std::optional<LoadedCheckpoint> found;
  if (restore_from == "latest") {
    absl::StatusOr<LoadedCheckpoint> newest = LoadNewestComplete(files, folder);
    if (absl::IsNotFound(newest.status())) {
      PUSHPULL_RETURN_IF_ERROR(FirstDamage(files, folder));
      return found;
    }
    PUSHPULL_RETURN_IF_ERROR(newest.status());
    found = *std::move(newest);
    return found;
  }
  const bool is_path = restore_from.front() == '/';
  LoadedCheckpoint loaded{.folder = is_path ? restore_from : JoinPath(folder, restore_from),
                          .manifest = {},
                          .skipped = {}};
  PUSHPULL_ASSIGN_OR_RETURN(loaded.manifest, ReadManifest(files, loaded.folder));
  found = std::move(loaded);
  return found;
}

}  // namespace pushpull
