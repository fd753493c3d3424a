// SPDX-License-Identifier: Apache-2.0
//
// One chunk in a data file: a header of 128 bytes with its own checksum, sections, value, optimizer
// state, zeros up to the next multiple of 64. The header describes all that follows it, so a record
// can be decoded on its own. Pure: converts from and to bytes; chunk_file.h reads and writes.
// Layout: docs/decisions/0009-checkpoint-format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/shard/chunk.h"
#include "runtime/tensor/dtype.h"

namespace pushpull {

inline constexpr uint16_t kCheckpointVersion = 1;
inline constexpr size_t kRecordHeaderBytes = 128;
// Records start at multiples of this, a cache line.
inline constexpr size_t kRecordAlignment = 64;
// More means damage, and is refused before anything is allocated for it. Adam's state is twice the
// size of the value; the sections of 4,096 workers are 64 KiB.
inline constexpr uint32_t kStateBytesMax = 16 * uint32_t{kChunkBytes};
inline constexpr uint32_t kRecordSectionBytesMax = uint32_t{1} << 20;

// The last update of a worker that the chunk has applied (modes Async and Bounded).
struct WorkerUpdate {
  WorkerId worker;
  uint64_t update = 0;
  friend bool operator==(const WorkerUpdate&, const WorkerUpdate&) = default;
};

// What a checkpoint records about a chunk besides its value and optimizer state.
struct ChunkRecord {
  ChunkId chunk;
  TensorId tensor;
  uint64_t index = 0;  // position among the tensor's chunks
  Step version;
  uint64_t updates = 0;  // optimizer steps done; below the version if steps were skipped
  Epoch epoch;           // of the last log entry
  DType dtype = DType::kFloat32;
  std::vector<WorkerUpdate> worker_updates = {};  // empty in mode Sync
  friend bool operator==(const ChunkRecord&, const ChunkRecord&) = default;
};

// What follows the header: size and XXH3-64 of each part.
struct RecordParts {
  uint32_t section_bytes = 0;
  uint32_t value_bytes = 0;
  uint32_t state_bytes = 0;
  uint64_t section_checksum = 0;
  uint64_t value_checksum = 0;
  uint64_t state_checksum = 0;

  // Of the whole record, including header and trailing zeros.
  uint64_t RecordBytes() const;
  // Trailing zeros.
  size_t PaddingBytes() const;
  friend bool operator==(const RecordParts&, const RecordParts&) = default;
};

// A record's header, and its position.
struct StoredRecord {
  ChunkRecord record;
  RecordParts parts;
  uint64_t offset = 0;
  uint64_t checksum = 0;  // of the header, and thereby of all it describes
};

// XXH3-64, as is every checksum of the format.
uint64_t ChecksumBytes(std::span<const std::byte> bytes);

// kUnimplemented: `file` has a newer version of the format; the text has both.
absl::Status CheckVersion(uint16_t version, const std::string& file);

// Writes the header with its checksum, and returns the checksum; `record.worker_updates` is left
// out.
uint64_t EncodeRecordHeader(const ChunkRecord& record,
                            const RecordParts& parts,
                            std::span<std::byte, kRecordHeaderBytes> out);

// `file` and `offset` say where the bytes come from. The worker_updates are in the sections, and
// empty in the result.
// kDataLoss: no record, or damaged. kUnimplemented: a dtype that this version does not know.
absl::StatusOr<StoredRecord> DecodeRecordHeader(
    std::span<const std::byte, kRecordHeaderBytes> bytes, const std::string& file, uint64_t offset);

// The sections of a record; empty if it has none.
std::vector<std::byte> EncodeRecordSections(const ChunkRecord& record);

// Fills in what the sections hold. Errors as for ReadSections.
absl::Status DecodeRecordSections(std::span<const std::byte> bytes,
                                  const std::string& file,
                                  uint64_t offset,
                                  ChunkRecord& record);

}  // namespace pushpull
