// SPDX-License-Identifier: Apache-2.0
//
// The chunks of a checkpoint, which may be in the files of any number of servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/mutex.h"
#include "runtime/checkpoint/chunk_file.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/store/row_table.h"

namespace pushpull {

// Thread-safe. Every call may block on the disk.
//
// Errors of all: kDataLoss, damaged, with file and offset, or the sizes differ from the tensor's;
// kUnimplemented, a newer format; others, the file cannot be read.
class StoredChunks {
 public:
  // `files` and `manifest`, that of the checkpoint in `folder`, are used, not owned, and outlive
  // this object. Files are opened when they are needed.
  StoredChunks(FileSystem& files, std::string folder, const CheckpointManifest& manifest)
      : files_(files), folder_(std::move(folder)), manifest_(manifest) {}

  // Reads and checks a chunk directly into the caller's memory.
  absl::StatusOr<ChunkRecord> Read(const StoredChunk& chunk,
                                   std::span<std::byte> value,
                                   std::span<std::byte> state) const;
  // Likewise one of the two.
  absl::StatusOr<ChunkRecord> ReadValue(const StoredChunk& chunk, std::span<std::byte> value) const;
  absl::StatusOr<ChunkRecord> ReadOptimizerState(const StoredChunk& chunk,
                                                 std::span<std::byte> state) const;
  // The chunk's header and sections.
  absl::StatusOr<StoredRecord> ReadHeader(const StoredChunk& chunk) const;
  // The rows of a chunk of `tensor`, as the manifest describes it.
  absl::StatusOr<RowsOfImage> ReadRows(const StoredChunk& chunk, const TensorSpec& tensor) const;

 private:
  absl::StatusOr<std::shared_ptr<const ChunkFileReader>> FileOf(const StoredChunk& chunk) const;
  std::string PathOf(const StoredChunk& chunk) const;
  absl::Status CheckSize(const StoredChunk& chunk,
                         absl::string_view what,
                         uint64_t stored,
                         uint64_t wanted) const;

  FileSystem& files_;
  const std::string folder_;
  const CheckpointManifest& manifest_;
  mutable Mutex mu_;
  mutable std::map<uint32_t, std::shared_ptr<const ChunkFileReader>> open_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
