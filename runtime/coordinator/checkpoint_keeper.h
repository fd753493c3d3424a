// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's hand in the folder of checkpoints, on a thread that may wait for the disk:
// manifests, pruning, what failed attempts leave. Also what a job begins from.
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
#include "runtime/coordinator/job_core.h"

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
  // Removes what is left of a failed attempt. Where that cannot be, a later save does.
  void Clear(const ClearCheckpoint& command, std::function<void()> done);

 private:
  Executor& disk_;
  FileSystem& files_;
};

// Where a job begins: `restore_from` is "latest", the name of a checkpoint in `folder` or the path
// of one anywhere. Nothing: "latest" and there is none, so it begins anew. Blocks on the disk.
//
// kNotFound       the checkpoint that is named is not there.
// kDataLoss       it is damaged; the text has file and offset.
// kUnimplemented  it, or the newest, is in a later format.
absl::StatusOr<std::optional<LoadedCheckpoint>> FindRestore(FileSystem& files,
                                                            const std::string& folder,
                                                            const std::string& restore_from);

}  // namespace pushpull
