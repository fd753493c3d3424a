// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's access to the checkpoint folder, on a thread that may block on the disk: writes
// manifests, prunes, cleans up after failed attempts, and finds the checkpoint that a job starts
// from.
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
  // `disk` runs what may block; both outlive this object and the tasks it has posted.
  CheckpointKeeper(Executor& disk, FileSystem& files) : disk_(disk), files_(files) {}

  // Writes the manifest, then prunes. `done` is called on the disk's executor; the first status
  // says whether the checkpoint was written, the second only how pruning went.
  void Save(SaveManifest command,
            std::function<void(const absl::Status&, const absl::Status&)> done);
  // Removes the files of a failed attempt. Files that cannot be removed are left to a later save.
  void Clear(const ClearCheckpoint& command, std::function<void()> done);
  // Creates the folder and checks that it is writable. Errors as WritableFile's and FileSystem's;
  // the text has the path.
  void Probe(const std::string& folder, std::function<void(const absl::Status&)> done);
  // What cannot be written is missing: a later start then knows less of what was lost.
  void Note(const NoteStep& command);

 private:
  Executor& disk_;
  FileSystem& files_;
  std::atomic<bool> is_noting_ = false;
};

// The step that was last noted in the folder; 0: none, or it cannot be read. Blocks on the disk.
Step NotedStep(FileSystem& files, const std::string& folder);

// Which job's checkpoints to look for, and where.
struct CheckpointPlace {
  // The folder in spec.checkpoint, with one subfolder per job. Earlier versions wrote the
  // checkpoints of all jobs directly to it.
  std::string root;
  std::string folder;  // the job's own
  CheckpointOwner job;
};

struct RestoreChoice {
  std::optional<LoadedCheckpoint> checkpoint;  // none: the job starts from the beginning
  std::vector<Announce> said;                  // what a user should know about the choice
};

// The checkpoint that a job starts from. `restore_from` is
//
//   "latest"   the job's own newest one: in its own folder, or if that has none, in the root, which
//              is only read. There may be none.
//   a name     of one of the job's own checkpoints, in these two folders.
//   a path     absolute or within the root: to a checkpoint of any job.
//
// Blocks on the disk.
//
// kNotFound         the named checkpoint does not exist.
// kInvalidArgument  the name belongs to another job's checkpoint, or leads out of the root.
// kDataLoss         it is damaged; the text has file and offset.
// kUnimplemented    it, or the newest one, is in a later format.
absl::StatusOr<RestoreChoice> FindRestore(FileSystem& files,
                                          const CheckpointPlace& place,
                                          const std::string& restore_from);

}  // namespace pushpull
