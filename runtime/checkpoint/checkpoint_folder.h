// SPDX-License-Identifier: Apache-2.0
//
// The folder of a job's checkpoints: DIR/step-000000000042/ has the data files and, written last,
// the manifest, which makes them a checkpoint. Everything here may block on the disk; there is no
// thread of its own. One process at a time writes manifests and prunes; servers write their data
// files meanwhile (chunk_file.h). Every job has its own folder; should it contain another job's
// checkpoints, they are neither used, counted, replaced nor removed.
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

// Turns the written files, which `manifest` names (AddFiles), into a checkpoint. Sets
// `manifest.sequence` above that of every other checkpoint in `dir`. When it returns OK, the
// checkpoint survives a power loss; after an error there is none, unless only the last fsync
// failed: then it is complete, but may not survive. An existing checkpoint of the same step and job
// is replaced atomically.
//
// kInvalidArgument     the manifest breaks a rule (CheckManifest). A bug of the caller.
// kFailedPrecondition  a file is not in the folder, or differs in size: servers and coordinator do
//                      not share `dir`; or the step's checkpoint belongs to another job. A person
//                      must act.
// kResourceExhausted   the disk or a quota is full; kUnavailable: the device failed. Give up this
//                      save; RemoveCheckpoint frees its space.
absl::Status WriteManifest(FileSystem& file_system,
                           const std::string& dir,
                           CheckpointManifest& manifest);

// The manifest of the checkpoint in `folder`, that of a step. The sizes of its files are checked,
// but not their contents.
//
// kNotFound       there is none: an abandoned attempt, or not a checkpoint at all.
// kDataLoss       it is damaged, or a file is missing or differs in size; the text has file and
//                 offset. Use another checkpoint.
// kUnimplemented  written in a newer format; the text has both versions. Use a newer program.
// others          `folder` cannot be read.
absl::StatusOr<CheckpointManifest> ReadManifest(FileSystem& file_system, const std::string& folder);

struct ListedCheckpoint {
  Step step;
  std::string folder;  // its path
  // OK: complete. Otherwise the error of ReadManifest.
  absl::Status status;
  uint64_t sequence = 0;  // 0 if the manifest is missing or damaged
  // From the manifest, if it can be read; a file of the checkpoint may still be damaged.
  std::optional<CheckpointOwner> owner = {};
  // From the manifest, if the status is OK.
  std::string mode;
  int64_t written_at = 0;
  uint64_t num_tensors = 0;
  uint64_t num_chunks = 0;
  uint64_t file_bytes = 0;  // of its data files
};

// The checkpoints in `dir`: first those whose manifest has a readable header, from the newest
// (highest sequence) on, then the others from the highest step on. kNotFound: there is no such
// folder.
absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(FileSystem& file_system,
                                                              const std::string& dir);

// Likewise for `dir` and the folders below it, down to a job's level in a folder of all jobs:
// NAMESPACE/JOB. Goes folder by folder, into every one whose name a namespace or a job could have.
absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpointsBelow(FileSystem& file_system,
                                                                   const std::string& dir);

struct LoadedCheckpoint {
  std::string folder;
  CheckpointManifest manifest;
  // Those passed over: damaged ones, each worth a warning, and abandoned attempts.
  std::vector<ListedCheckpoint> skipped;
};

// Whether it is known to be a checkpoint of a job other than `job`.
bool IsOfAnother(const ListedCheckpoint& listed, const CheckpointOwner& job);

// The newest checkpoint of `job` whose manifest is valid and whose files exist. The files' contents
// are checked when they are read.
//
// kNotFound       there is no complete one; the text says what was found instead.
// kUnimplemented  the newest is in a newer format; going back to an older one would silently
//                 lose steps.
// others          something in `dir` cannot be read, so the newest is unknown.
absl::StatusOr<LoadedCheckpoint> LoadNewestComplete(FileSystem& file_system,
                                                    const std::string& dir,
                                                    const CheckpointOwner& job);

// Removes the checkpoint of `step`, manifest first, so that after an interruption it is no longer a
// checkpoint. OK if there is nothing.
absl::Status RemoveCheckpoint(FileSystem& file_system, const std::string& dir, Step step);

struct PruneOptions {
  CheckpointOwner job;
  size_t keep = 3;                   // complete ones to keep; at least 1
  std::optional<Step> writing = {};  // the step of a save in progress, which is left alone
};

// Removes complete checkpoints of the job beyond the newest `keep`; abandoned attempts and damaged
// checkpoints, if a complete one of a higher step exists or a higher step is being written; and,
// from the complete ones that stay, files left by an earlier attempt of the same step. A checkpoint
// of another job or in a newer format is neither counted nor touched. Continues after an error and
// returns the first.
absl::Status Prune(FileSystem& file_system, const std::string& dir, const PruneOptions& options);

}  // namespace pushpull
