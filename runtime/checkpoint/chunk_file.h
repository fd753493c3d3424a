// SPDX-License-Identifier: Apache-2.0
//
// A data file of a checkpoint: the records of what one lane of one server captured, in any order.
// Values and states move between the caller's memory and the file without a copy and are
// checksummed once. No thread of its own: every call here may block on the disk, so servers write
// on a thread that does nothing else. A checkpoint's manifest (manifest.h) lists its files. Layout:
// docs/decisions/0009-checkpoint-format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/checkpoint/chunk_record.h"
#include "runtime/checkpoint/file_system.h"

namespace pushpull {

inline constexpr size_t kFileHeaderBytes = 64;

// Who writes which file. `attempt` is drawn at random when a save starts, anew for every try, so
// that files left by an earlier try of the same step are never mixed in.
struct ChunkFileId {
  Step step;
  uint64_t attempt = 0;
  ServerId server;
  uint32_t lane = 0;
  friend bool operator==(const ChunkFileId&, const ChunkFileId&) = default;
};

// "server-00003-lane-01-00000000000000a7.chunks", the attempt in hexadecimal.
std::string ChunkFileName(const ChunkFileId& id);

// "DIR/step-000000000042".
std::string StepFolder(const std::string& dir, Step step);

// Where a chunk is in its file.
struct ChunkPlace {
  ChunkId chunk;
  Step version;
  uint64_t offset = 0;    // of the record, from the file's start
  uint32_t bytes = 0;     // of the whole record
  uint64_t checksum = 0;  // of the record's header, which includes those of its parts
  friend bool operator==(const ChunkPlace&, const ChunkPlace&) = default;
};

// What the manifest needs to know about a finished file.
struct ChunkFileSummary {
  std::string name;
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // ExtendFileChecksum over all records, thus over everything
  std::vector<ChunkPlace> chunks;
};

// The checksum of a file after one more record: XXH3-64 of the checksum of the record's header,
// seeded with the file's checksum so far. Before the first record, that is the file header's
// checksum.
uint64_t ExtendFileChecksum(uint64_t checksum, uint64_t record_checksum);

// Writes one file, which is not part of a checkpoint until a manifest names it. The destructor
// removes an unfinished file, so a failed save frees its space. Thread-confined to the thread that
// writes.
class ChunkFileWriter {
 public:
  // Creates the checkpoint's folder in `dir` if it does not exist. `file_system` outlives the
  // writer. Errors as for Append.
  static absl::StatusOr<std::unique_ptr<ChunkFileWriter>> Create(FileSystem& file_system,
                                                                 const std::string& dir,
                                                                 const ChunkFileId& id);
  ~ChunkFileWriter();
  ChunkFileWriter(const ChunkFileWriter&) = delete;
  ChunkFileWriter& operator=(const ChunkFileWriter&) = delete;

  // Appends one chunk. Blocks on the disk.
  //
  // value: 1 to kChunkBytes bytes of record.dtype, as in memory. state: at most kStateBytesMax
  // bytes of optimizer state. Both are read during the call, in place.
  //
  // kResourceExhausted  the disk or a quota is full. Give up this save; the next may find room.
  // kUnavailable        the device failed. Likewise.
  // After an error, every further call returns it.
  absl::Status Append(const ChunkRecord& record,
                      std::span<const std::byte> value,
                      std::span<const std::byte> state);

  // Returns once the file and its name survive a power loss; no further call may follow. Errors as
  // for Append; the file is then removed.
  absl::StatusOr<ChunkFileSummary> Finish();

 private:
  ChunkFileWriter(FileSystem& file_system, std::string folder, std::string name)
      : file_system_(file_system), folder_(std::move(folder)), summary_{.name = std::move(name)} {}

  FileSystem& file_system_;
  const std::string folder_;
  std::unique_ptr<WritableFile> file_;
  absl::Status status_;
  bool is_finished_ = false;
  ChunkFileSummary summary_;
};

// How `stored` differs from the record that `place` describes; empty: it does not.
std::string DifferenceFrom(const ChunkPlace& place, const StoredRecord& stored);

// Reads records of one file, in any order. Thread-compatible: several threads may read at once.
class ChunkFileReader {
 public:
  // Checks the file's header.
  //
  // kNotFound       there is no such file.
  // kDataLoss       damaged; here and below the text has file and offset.
  // kUnimplemented  written in a newer format; the text has both versions.
  // kUnavailable    the device cannot be read.
  static absl::StatusOr<ChunkFileReader> Open(FileSystem& file_system, const std::string& path);

  const ChunkFileId& id() const { return id_; }
  uint64_t num_bytes() const { return file_->num_bytes(); }
  // Of the file's own header: where ExtendFileChecksum starts.
  uint64_t header_checksum() const { return header_checksum_; }

  // Reads and checks a chunk directly into the caller's memory, whose sizes are the tensor's.
  // Blocks on the disk.
  //
  // kDataLoss: damaged, or not the record that `place` describes; `value` and `state` are then
  // undefined. kInvalidArgument: the record's sizes differ.
  absl::StatusOr<ChunkRecord> Read(const ChunkPlace& place,
                                   std::span<std::byte> value,
                                   std::span<std::byte> state) const;

  // The two halves of Read, for callers that do not know the sizes; ReadHeader reads the sections
  // too. `value` and `state` must be as long as `stored.parts` says.
  absl::StatusOr<StoredRecord> ReadHeader(uint64_t offset) const;
  absl::Status ReadParts(const StoredRecord& stored,
                         std::span<std::byte> value,
                         std::span<std::byte> state) const;
  // Likewise one part alone.
  absl::Status ReadValue(const StoredRecord& stored, std::span<std::byte> value) const;
  absl::Status ReadState(const StoredRecord& stored, std::span<std::byte> state) const;

 private:
  ChunkFileReader(std::string path, std::unique_ptr<ReadableFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  absl::Status CheckValue(const StoredRecord& stored, std::span<const std::byte> value) const;
  absl::Status CheckState(const StoredRecord& stored, std::span<const std::byte> state) const;

  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  ChunkFileId id_;
  uint64_t header_checksum_ = 0;
};

}  // namespace pushpull
