// SPDX-License-Identifier: Apache-2.0
//
// The manifest of a checkpoint: what was saved, and where each chunk of it is. It is written last,
// so a folder is a checkpoint exactly when it has a valid one. Pure: from and to bytes, and the
// rules it must meet; checkpoint_folder.h does the reading and writing. Layout:
// docs/decisions/0009-checkpoint-format.md. Not the TrainingJob manifest, which is in runtime/job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/tensor_spec.h"

#include "runtime/base/ids.h"
#include "runtime/checkpoint/chunk_file.h"
#include "runtime/shard/chunk.h"

namespace pushpull {

inline constexpr size_t kManifestHeaderBytes = 64;
// Twice what the chunks of the largest job need (kTableBytesMax, 32 bytes a chunk).
inline constexpr uint64_t kManifestBytesMax = uint64_t{1} << 30;

// Whether every chunk has the checkpoint's step as its version (mode Sync), or each the one it had
// when it was captured (Async, Bounded).
enum class ChunkVersions : uint8_t { kOfOneStep = 1, kOfEachChunk = 2 };

struct CheckpointFile {
  std::string name;  // inside the checkpoint's folder
  uint64_t bytes = 0;
  uint32_t num_records = 0;  // of which the manifest may leave out some: captured twice
  uint64_t checksum = 0;     // ChunkFileSummary::checksum
  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

// Where a chunk is.
struct StoredChunk {
  uint32_t file = 0;  // position in CheckpointManifest::files
  ChunkPlace place;
  friend bool operator==(const StoredChunk&, const StoredChunk&) = default;
};

// Bytes that mean something to the job only: data positions, the state of a worker's reader.
struct SystemSection {
  std::string name;
  std::vector<std::byte> bytes;
  friend bool operator==(const SystemSection&, const SystemSection&) = default;
};

// Whose a checkpoint is.
struct CheckpointOwner {
  std::string job_namespace;  // empty: not known, from before manifests named it
  std::string job;
  friend bool operator==(const CheckpointOwner&, const CheckpointOwner&) = default;
};

// "default/mnist"; "mnist" where the namespace is not known.
std::string ToString(const CheckpointOwner& owner);

// A namespace that is not known is that of every job.
bool IsSameJob(const CheckpointOwner& a, const CheckpointOwner& b);

struct CheckpointManifest {
  CheckpointOwner owner;
  Step step;
  std::string mode;  // as spec.sync.mode spells it
  ChunkVersions versions = ChunkVersions::kOfOneStep;
  // Seconds of the wall clock since 1970, for people; nothing is decided by it.
  int64_t written_at = 0;
  // Rises with every checkpoint that is written to a folder, and says which of them is the newest:
  // after a return to an earlier step the steps do not. Set by WriteManifest.
  uint64_t sequence = 0;
  std::vector<TensorSpec> tensors;  // in the order of their ids, which fixes the chunks' ids
  std::vector<CheckpointFile> files;
  std::vector<StoredChunk> chunks;  // position i is ChunkId i; every chunk of every tensor
  std::vector<SystemSection> system;
};

// Fills in `files` and `chunks` from what the writers returned. Of a chunk that several captured
// the first file's counts.
//
// kFailedPrecondition: a chunk is in no file, or in one of another version; the text names tensor
// and chunk. The save has failed; try the next step.
absl::Status AddFiles(std::span<const ChunkFileSummary> files, CheckpointManifest& manifest);

// The chunks of the tensors. kInvalidArgument: the tensors are too large, or a shape cannot be.
absl::StatusOr<ChunkTable> MakeChunkTable(std::span<const TensorSpec> tensors);

// All that can be said of a manifest without its files. kInvalidArgument names what is wrong.
absl::Status CheckManifest(const CheckpointManifest& manifest);

// `manifest` has passed CheckManifest.
std::vector<std::byte> EncodeManifest(const CheckpointManifest& manifest);

// `file` says where the bytes come from.
//
// kDataLoss       damaged; the text has file and, where it is known, offset.
// kUnimplemented  written in a later format, or with something that this version does not know; the
//                 text names both versions, or the thing.
absl::StatusOr<CheckpointManifest> DecodeManifest(std::span<const std::byte> bytes,
                                                  const std::string& file);

// What the header says in every version of the format, later ones included: enough to put a
// checkpoint in order that cannot be read.
struct ManifestHeader {
  uint16_t version = 0;
  uint64_t sequence = 0;
  uint64_t body_bytes = 0;
  uint64_t body_checksum = 0;
};

// kDataLoss: damaged, or shorter than a header.
absl::StatusOr<ManifestHeader> DecodeManifestHeader(std::span<const std::byte> bytes,
                                                    const std::string& file);

// One line for each difference between the checkpoint's tensors and those of a job that wants to
// start from it; empty: it can. Tensors are matched by name, in any order. Compared are shape,
// the type of the master values and the optimizer's kind and kinds of state; its settings, as the
// learning rate, are the job's own business.
std::vector<std::string> CompareTensors(const CheckpointManifest& manifest,
                                        std::span<const TensorSpec> wanted);

// For a job of these tensors, [its number of chunks]: the position in `manifest.chunks` of each of
// its chunks, by tensor name and index. The ids differ where the order of the tensors does.
// CompareTensors must have found no difference.
std::vector<size_t> MatchChunks(const CheckpointManifest& manifest,
                                std::span<const TensorSpec> wanted);

}  // namespace pushpull
