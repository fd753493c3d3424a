// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's access to the folder of checkpoints, on a thread that may wait for the disk:
// writes manifests, prunes, clears up after failed attempts, and finds the checkpoint that a job
// starts from.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/executor.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/coordinator/command.h"

namespace pushpull {

// Thread-safe.
class CheckpointKeeper {
 public:
  // `disk` runs what may block; both outlive this object and what it has posted.
  CheckpointKeeper(Executor& disk, FileSystem& files) : disk_(disk), files_(files) {}

  // Writes the manifest, then prunes. `done` is called on the disk's executor; the first status
  // says whether the checkpoint is there, the second only how pruning went.
  void Save(SaveManifest command,
            std::function<void(const absl::Status&, const absl::Status&)> done);
  // Removes the files of a failed attempt. Files that cannot be removed are left to a later save.
  void Clear(const ClearCheckpoint& command, std::function<void()> done);

 private:
  Executor& disk_;
  FileSystem& files_;
};

// The checkpoint that a job starts from: `restore_from` is "latest", the name of a checkpoint in
// `folder` or the path of one anywhere. None: "latest" was asked for and the folder has none.
// Blocks on the disk.
//
// kNotFound       the named checkpoint does not exist.
// kDataLoss       it is damaged; the text has file and offset.
// kUnimplemented  it, or the newest one, is in a later format.
absl::StatusOr<std::optional<LoadedCheckpoint>> FindRestore(FileSystem& files,
                                                            const std::string& folder,
                                                            const std::string& restore_from);

}  // namespace pushpull
