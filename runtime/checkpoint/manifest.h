// SPDX-License-Identifier: Apache-2.0
//
// The manifest of a checkpoint: what was saved, and where each chunk of it is. It is written last,
// so a folder is a checkpoint exactly if it has a valid one. Pure: conversion from and to bytes,
// and the rules that a manifest must meet; checkpoint_folder.h reads and writes. Layout:
// docs/decisions/0009-checkpoint-format.md. Not the TrainingJob manifest, which is in runtime/job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "pushpull/tensor_spec.h"

#include "runtime/base/ids.h"
#include "runtime/checkpoint/chunk_file.h"
#include "runtime/shard/chunk.h"

namespace pushpull {

inline constexpr size_t kManifestHeaderBytes = 64;
// Twice what the chunks of the largest job need (kTableBytesMax, 32 bytes per chunk).
inline constexpr uint64_t kManifestBytesMax = uint64_t{1} << 30;

// Whether every chunk has the checkpoint's step as its version (mode Sync), or each has the version
// at which it was captured (Async, Bounded).
enum class ChunkVersions : uint8_t { kOfOneStep = 1, kOfEachChunk = 2 };

struct CheckpointFile {
  std::string name;  // inside the checkpoint's folder
  uint64_t bytes = 0;
  uint32_t num_records = 0;  // the manifest may leave out some: chunks captured twice
  uint64_t checksum = 0;     // ChunkFileSummary::checksum
  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

// Where a chunk is.
struct StoredChunk {
  uint32_t file = 0;  // position in CheckpointManifest::files
  ChunkPlace place;
  friend bool operator==(const StoredChunk&, const StoredChunk&) = default;
};

// Bytes with a meaning only to the job: data positions, the state of a worker's reader.
struct SystemSection {
  std::string name;
  std::vector<std::byte> bytes;
  friend bool operator==(const SystemSection&, const SystemSection&) = default;
};

// The job that owns a checkpoint.
struct CheckpointOwner {
  std::string job_namespace;  // empty: unknown, from before manifests named it
  std::string job;
  friend bool operator==(const CheckpointOwner&, const CheckpointOwner&) = default;
};

// "default/mnist"; "mnist" if the namespace is unknown.
std::string ToString(const CheckpointOwner& owner);

// An unknown namespace matches every job's.
bool IsSameJob(const CheckpointOwner& a, const CheckpointOwner& b);

struct CheckpointManifest {
  CheckpointOwner owner;
  Step step;
  std::string mode;  // as spec.sync.mode spells it
  ChunkVersions versions = ChunkVersions::kOfOneStep;
  // Wall-clock seconds since 1970, for people only; no decision depends on it.
  int64_t written_at = 0;
  // Rises with every checkpoint written to a folder, and tells which of them is the newest: after a
  // return to an earlier step, step numbers do not. Set by WriteManifest.
  uint64_t sequence = 0;
  std::vector<TensorSpec> tensors;  // in the order of their ids, which determines the chunks' ids
  std::vector<CheckpointFile> files;
  std::vector<StoredChunk> chunks;  // position i is ChunkId i; every chunk of every tensor
  std::vector<SystemSection> system;
};

// The step that follows a checkpoint: the highest, if chunks were saved at different ones.
Step StepAfter(const CheckpointManifest& manifest);

// Fills in `files` and `chunks` from what the writers returned. If several captured a chunk, the
// first file's counts.
//
// kFailedPrecondition: a chunk is in no file, or in one with another version; the text names tensor
// and chunk. The save has failed; try a later step.
absl::Status AddFiles(std::span<const ChunkFileSummary> files, CheckpointManifest& manifest);

// The chunks of the tensors. kInvalidArgument: the tensors are too large, or a shape is impossible.
absl::StatusOr<ChunkTable> MakeChunkTable(std::span<const TensorSpec> tensors);

// Checks everything that can be checked without the files. kInvalidArgument names what is wrong.
absl::Status CheckManifest(const CheckpointManifest& manifest);

// `manifest` has passed CheckManifest.
std::vector<std::byte> EncodeManifest(const CheckpointManifest& manifest);

// `file` says where the bytes come from.
//
// kDataLoss       damaged; the text has the file and, if known, the offset.
// kUnimplemented  written in a newer format, or with something that this version does not know; the
//                 text names both versions, or the thing.
absl::StatusOr<CheckpointManifest> DecodeManifest(std::span<const std::byte> bytes,
                                                  const std::string& file);

// What the header says in every version of the format, newer ones included: enough to rank a
// checkpoint that cannot be read.
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
// start from it; empty: it can. Tensors are matched by name, in any order. Shape, the type of the
// master values, and the optimizer's kind and kinds of state are compared; its settings, such as
// the learning rate, are up to the job.
std::vector<std::string> CompareTensors(const CheckpointManifest& manifest,
                                        std::span<const TensorSpec> wanted);

// Whether the library registers the tensor itself: positions in the data set, and what the Python
// package keeps beside the program's tensors.
bool IsOfLibrary(absl::string_view tensor);

// The same for a job that takes only the values of the tensors that both have: shapes and types of
// master values are compared. A line, too, if there are no such tensors. The library's own are left
// alone.
std::vector<std::string> CompareValues(const CheckpointManifest& manifest,
                                       std::span<const TensorSpec> wanted);

// The names of the job's tensors that the checkpoint lacks, except the library's own.
std::vector<std::string> LackingValues(const CheckpointManifest& manifest,
                                       std::span<const TensorSpec> wanted);

// For a job with these tensors, [its number of chunks]: the position in `manifest.chunks` of each
// of its chunks, by tensor name and index. Ids differ if the order of the tensors does.
// CompareTensors must have found no difference.
std::vector<size_t> MatchChunks(const CheckpointManifest& manifest,
                                std::span<const TensorSpec> wanted);

// Likewise for a job that takes only values; none: the checkpoint lacks the tensor, or it is the
// library's own. CompareValues must have found no difference.
std::vector<std::optional<size_t>> MatchValues(const CheckpointManifest& manifest,
                                               std::span<const TensorSpec> wanted);

}  // namespace pushpull
