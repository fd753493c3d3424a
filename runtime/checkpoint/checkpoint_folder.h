// SPDX-License-Identifier: Apache-2.0
//
// The folder of a job's checkpoints: DIR/step-000000000042/ has the data files and, written last,
// the manifest, which makes a checkpoint of them. Everything here may wait for the disk and has no
// thread of its own. One process at a time writes manifests and prunes; servers write their data
// files beside it (chunk_file.h). Every job has a folder of its own; should checkpoints of another
// lie in it, they are neither used, counted, replaced nor removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/manifest.h"

namespace pushpull {

inline constexpr char kManifestName[] = "MANIFEST";

// Makes a checkpoint of the files that were written, which `manifest` names (AddFiles). Sets
// `manifest.sequence` above that of every other checkpoint in `dir`. When it returns OK, the
// checkpoint survives a loss of power; after an error it is not there, except where only the last
// fsync failed: then it is there and whole, but may not survive. A checkpoint of the same step and
// job that is there is replaced in one moment.
//
// kInvalidArgument     the manifest breaks a rule (CheckManifest). A bug of the caller.
// kFailedPrecondition  a file is not in the folder, or has another size: servers and coordinator do
//                      not share `dir`; or the step's checkpoint there is another job's. A person
//                      must act.
// kResourceExhausted   the disk or a quota is full; kUnavailable: the device failed. Give up this
//                      save; RemoveCheckpoint gives its space back.
absl::Status WriteManifest(FileSystem& file_system,
                           const std::string& dir,
                           CheckpointManifest& manifest);

// The manifest of the checkpoint in `folder`, a step's. The sizes of its files are checked, not
// what is in them.
//
// kNotFound       there is none: an attempt that died, or not a checkpoint at all.
// kDataLoss       it is damaged, or a file is missing or has another size; the text has file and
//                 offset. Take another one.
// kUnimplemented  written in a later format; the text has both versions. Use a later program.
// others          `folder` cannot be read.
absl::StatusOr<CheckpointManifest> ReadManifest(FileSystem& file_system, const std::string& folder);

struct ListedCheckpoint {
  Step step;
  std::string folder;  // its path
  // OK: complete. Otherwise the error of ReadManifest.
  absl::Status status;
  uint64_t sequence = 0;  // 0 where the manifest is missing or damaged
  // Of the manifest, where it can be read; a file of the checkpoint may still be damaged.
  std::optional<CheckpointOwner> owner = {};
  // Of the manifest, where the status is OK.
  std::string mode;
  int64_t written_at = 0;
  uint64_t num_tensors = 0;
  uint64_t num_chunks = 0;
  uint64_t file_bytes = 0;  // of its data files
};

// What is in `dir`: those with a readable header of a manifest from the newest (highest sequence)
// on, then the others from the highest step on. kNotFound: there is no such folder.
absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(FileSystem& file_system,
                                                              const std::string& dir);

// The same of `dir` and of the folders in it, as far down as jobs have theirs in a folder of all
// jobs: NAMESPACE/JOB. One folder after the other; other folders are looked into as well.
absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpointsBelow(FileSystem& file_system,
                                                                   const std::string& dir);

struct LoadedCheckpoint {
  std::string folder;
  CheckpointManifest manifest;
  // What was passed over: damaged ones, which are worth a warning each, and attempts that died.
  std::vector<ListedCheckpoint> skipped;
};

// It is known to be a checkpoint of another job than `job`.
bool IsOfAnother(const ListedCheckpoint& listed, const CheckpointOwner& job);

// The newest checkpoint of `job` whose manifest is valid and whose files are there. What is in the
// files is checked when it is read.
//
// kNotFound       there is no complete one; the text says what is there instead.
// kUnimplemented  the newest is in a later format; going back behind it would lose its steps
//                 without a word.
// others          something in `dir` cannot be read, so it is not known which is the newest.
absl::StatusOr<LoadedCheckpoint> LoadNewestComplete(FileSystem& file_system,
                                                    const std::string& dir,
                                                    const CheckpointOwner& job);

// Removes the checkpoint of `step`, the manifest first, so that what an interruption leaves is
// none. Fine where there is nothing.
absl::Status RemoveCheckpoint(FileSystem& file_system, const std::string& dir, Step step);

struct PruneOptions {
  CheckpointOwner job;
  size_t keep = 3;                   // complete ones to keep; at least 1
  std::optional<Step> writing = {};  // the step of a save under way, which is left alone
};

// Removes complete checkpoints of the job beyond the newest `keep`; attempts that died and damaged
// ones, where a complete one of a higher step exists or a higher step is being written; in the
// complete ones that stay, files that an earlier attempt of the same step left. A checkpoint of
// another job or in a later format is neither counted nor touched. Goes on after an error and
// returns the first.
absl::Status Prune(FileSystem& file_system, const std::string& dir, const PruneOptions& options);

}  // namespace pushpull
