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
  // Whether the folder, which is created, can be written. Errors as WritableFile's and
  // FileSystem's; the text has the path.
  void Probe(const std::string& folder, std::function<void(const absl::Status&)> done);

 private:
  Executor& disk_;
  FileSystem& files_;
};

// Whose checkpoints are looked for, and where.
struct CheckpointPlace {
  // What spec.checkpoint names: jobs have folders in it. Earlier versions wrote the checkpoints of
  // all jobs right here.
  std::string root;
  std::string folder;  // the job's own
  CheckpointOwner job;
};

struct RestoreChoice {
  std::optional<LoadedCheckpoint> checkpoint;  // none: the job starts from the beginning
  std::vector<Announce> said;                  // what a person should know of the choice
};

// The checkpoint that a job starts from. `restore_from` is
//
//   "latest"   the newest of the job itself: of its own folder, or if that has none, of the root,
//              which is only read. There may be none.
//   a name     of a checkpoint of the job itself, in these two folders.
//   a path     absolute or in the root: of a checkpoint of any job.
//
// Blocks on the disk.
//
// kNotFound         the named checkpoint does not exist.
// kInvalidArgument  the name is that of another job's checkpoint, or leads out of the root.
// kDataLoss         it is damaged; the text has file and offset.
// kUnimplemented    it, or the newest one, is in a later format.
absl::StatusOr<RestoreChoice> FindRestore(FileSystem& files,
                                          const CheckpointPlace& place,
                                          const std::string& restore_from);

}  // namespace pushpull
