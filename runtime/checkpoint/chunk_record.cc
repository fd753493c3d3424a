// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/chunk_record.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/section.h"

namespace pushpull {
namespace {

// "PuCh"
constexpr uint32_t kRecordMagic = 0x68437550;

// Offsets of docs/decisions/0009-checkpoint-format.md. What is not named is zero in version 1.
enum RecordOffset : size_t {
  kRecordMagicAt = 0,
  kTensorAt = 4,
  kChunkAt = 8,
  kIndexAt = 16,
  kRecordVersionAt = 24,
  kUpdatesAt = 32,
  kTermAt = 40,
  kCounterAt = 48,
  kDTypeAt = 56,
  kSectionBytesAt = 60,
  kValueBytesAt = 64,
  kStateBytesAt = 68,
  kSectionChecksumAt = 72,
  kValueChecksumAt = 80,
  kStateChecksumAt = 88,
  kRecordHeaderChecksumAt = 120,
};

constexpr char kWorkerUpdates[] = "worker-updates";
// worker as 32 bits, zero as 32 bits, update as 64 bits
constexpr size_t kWorkerUpdateBytes = 16;

uint64_t UnpaddedBytes(const RecordParts& parts) {
  return uint64_t{kRecordHeaderBytes} + parts.section_bytes + parts.value_bytes + parts.state_bytes;
}

}  // namespace

size_t RecordParts::PaddingBytes() const {
  return (kRecordAlignment - UnpaddedBytes(*this) % kRecordAlignment) % kRecordAlignment;
}

uint64_t RecordParts::RecordBytes() const {
  return UnpaddedBytes(*this) + PaddingBytes();
}

uint64_t ChecksumBytes(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t EncodeRecordHeader(const ChunkRecord& record,
                            const RecordParts& parts,
                            std::span<std::byte, kRecordHeaderBytes> out) {
  const auto put = [out](RecordOffset at, auto number) { StoreNumber(number, out.subspan(at)); };
  std::fill(out.begin(), out.end(), std::byte{0});
  put(kRecordMagicAt, kRecordMagic);
  put(kTensorAt, record.tensor.value());
  put(kChunkAt, record.chunk.value());
  put(kIndexAt, record.index);
  put(kRecordVersionAt, record.version.value());
  put(kUpdatesAt, record.updates);
  put(kTermAt, record.epoch.term.value());
  put(kCounterAt, record.epoch.counter);
  put(kDTypeAt, static_cast<uint8_t>(record.dtype));
  put(kSectionBytesAt, parts.section_bytes);
  put(kValueBytesAt, parts.value_bytes);
  put(kStateBytesAt, parts.state_bytes);
  put(kSectionChecksumAt, parts.section_checksum);
  put(kValueChecksumAt, parts.value_checksum);
  put(kStateChecksumAt, parts.state_checksum);
  const uint64_t checksum = ChecksumBytes(out.first(kRecordHeaderChecksumAt));
  put(kRecordHeaderChecksumAt, checksum);
  return checksum;
}

absl::StatusOr<RecordHeader> DecodeRecordHeader(
    std::span<const std::byte, kRecordHeaderBytes> bytes,
    const std::string& file,
    uint64_t offset) {
  const auto get = [bytes]<typename Number>(RecordOffset at, Number) {
    return LoadNumber<Number>(bytes.subspan(at));
  };
  RecordHeader header;
  header.checksum = get(kRecordHeaderChecksumAt, uint64_t{});
  if (header.checksum != ChecksumBytes(bytes.first(kRecordHeaderChecksumAt)))
    return DamageError(file, offset, "wrong checksum of a chunk's header");
  if (get(kRecordMagicAt, uint32_t{}) != kRecordMagic)
    return DamageError(file, offset, "here is no chunk");
  header.record = {.chunk = ChunkId{get(kChunkAt, uint64_t{})},
                   .tensor = TensorId{get(kTensorAt, uint32_t{})},
                   .index = get(kIndexAt, uint64_t{}),
                   .version = Step{get(kRecordVersionAt, uint64_t{})},
                   .updates = get(kUpdatesAt, uint64_t{}),
                   .epoch = {Term{get(kTermAt, uint64_t{})}, get(kCounterAt, uint64_t{})},
                   .dtype = static_cast<DType>(get(kDTypeAt, uint8_t{}))};
  header.parts = {.section_bytes = get(kSectionBytesAt, uint32_t{}),
                  .value_bytes = get(kValueBytesAt, uint32_t{}),
                  .state_bytes = get(kStateBytesAt, uint32_t{}),
                  .section_checksum = get(kSectionChecksumAt, uint64_t{}),
                  .value_checksum = get(kValueChecksumAt, uint64_t{}),
                  .state_checksum = get(kStateChecksumAt, uint64_t{})};
  const RecordParts& parts = header.parts;
  if (parts.section_bytes > kRecordSectionBytesMax || parts.value_bytes > kChunkBytes ||
      parts.state_bytes > kStateBytesMax) {
    return DamageError(file,
                       offset,
                       absl::StrCat("a chunk with ",
                                    parts.section_bytes,
                                    " bytes of sections, ",
                                    parts.value_bytes,
                                    " of value and ",
                                    parts.state_bytes,
                                    " of state cannot be"));
  }
  if (!IsKnown(header.record.dtype)) {
    return absl::UnimplementedError(absl::StrCat(file,
                                                 " at byte ",
                                                 offset,
                                                 ": this version does not know ",
                                                 ToString(header.record.dtype),
                                                 "; use a later one"));
  }
  return header;
}

std::vector<std::byte> EncodeRecordSections(const ChunkRecord& record) {
  if (record.worker_updates.empty()) return {};
  ByteWriter updates;
  for (const WorkerUpdate& update : record.worker_updates) {
    updates.Put(update.worker.value());
    updates.Put(uint32_t{0});
    updates.Put(update.update);
  }
  ByteWriter sections;
  PutSection(kWorkerUpdates, SectionRule::kRequired, updates.Take(), sections);
  return sections.Take();
}

absl::Status DecodeRecordSections(std::span<const std::byte> bytes,
                                  const std::string& file,
                                  uint64_t offset,
                                  ChunkRecord& record) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<Section> sections,
                            ReadSections(bytes, {kWorkerUpdates}, file, offset));
  record.worker_updates.clear();
  if (sections.empty()) return absl::OkStatus();
  ByteReader reader(sections.front().bytes);
  if (sections.size() > 1 || reader.num_left() % kWorkerUpdateBytes != 0)
    return DamageError(file, offset, "the list of the workers' updates cannot be read");
  record.worker_updates.reserve(reader.num_left() / kWorkerUpdateBytes);
  while (reader.num_left() > 0) {
    const WorkerId worker{reader.Get<uint32_t>()};
    reader.Get<uint32_t>();
    record.worker_updates.push_back({.worker = worker, .update = reader.Get<uint64_t>()});
  }
  return absl::OkStatus();
}

}  // namespace pushpull
