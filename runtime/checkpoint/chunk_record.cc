// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/chunk_record.h"

#include <xxhash.h>

#include "absl/strings/str_format.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/section.h"

namespace pushpull {
namespace {

// "PuCh"
constexpr uint32_t kRecordMagic = 0x68437550;

// The last field.
constexpr size_t kRecordChecksumAt = kRecordHeaderBytes - sizeof(uint64_t);

// The fields between magic and checksum, as in docs/decisions/0009-checkpoint-format.md.
template <typename Visit, typename Record, typename Parts>
void VisitRecordHeader(Visit& visit, Record& record, Parts& parts) {
  visit(record.tensor,
        record.chunk,
        record.index,
        record.version,
        record.updates,
        record.epoch.term,
        record.epoch.counter,
        record.dtype,
        Reserved<3>{},
        parts.section_bytes,
        parts.value_bytes,
        parts.state_bytes,
        parts.section_checksum,
        parts.value_checksum,
        parts.state_checksum,
        Reserved<24>{});
}

constexpr char kWorkerUpdates[] = "worker-updates";
constexpr size_t kWorkerUpdateBytes = 16;

template <typename Visit, typename Update>
void VisitWorkerUpdate(Visit& visit, Update& update) {
  visit(update.worker, Reserved<4>{}, update.update);
}

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

absl::Status CheckVersion(uint16_t version, const std::string& file) {
  if (version <= kCheckpointVersion) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrFormat("%s: has format version %d, this program reads up to version %d",
                      file,
                      version,
                      kCheckpointVersion));
}

uint64_t EncodeRecordHeader(const ChunkRecord& record,
                            const RecordParts& parts,
                            std::span<std::byte, kRecordHeaderBytes> out) {
  HeaderWriter put(out);
  put(kRecordMagic);
  VisitRecordHeader(put, record, parts);
  const uint64_t checksum = ChecksumBytes(out.first<kRecordChecksumAt>());
  put(checksum);
  return checksum;
}

absl::StatusOr<StoredRecord> DecodeRecordHeader(
    std::span<const std::byte, kRecordHeaderBytes> bytes,
    const std::string& file,
    uint64_t offset) {
  StoredRecord stored{.offset = offset,
                      .checksum = LoadNumber<uint64_t>(bytes.subspan<kRecordChecksumAt>())};
  if (stored.checksum != ChecksumBytes(bytes.first<kRecordChecksumAt>()))
    return DamageError(file, offset, "wrong checksum of a chunk's header");
  ByteReader get(bytes);
  if (get.Get<uint32_t>() != kRecordMagic) return DamageError(file, offset, "here is no chunk");
  VisitRecordHeader(get, stored.record, stored.parts);
  const RecordParts& parts = stored.parts;
  if (parts.section_bytes > kRecordSectionBytesMax || parts.value_bytes > kChunkBytes ||
      parts.state_bytes > kStateBytesMax) {
    return DamageError(
        file,
        offset,
        absl::StrFormat("a chunk with %d bytes of sections, %d of value and %d of state cannot be",
                        parts.section_bytes,
                        parts.value_bytes,
                        parts.state_bytes));
  }
  if (!IsKnown(stored.record.dtype)) {
    return absl::UnimplementedError(
        absl::StrFormat("%s at byte %d: this version does not know %s; use a later one",
                        file,
                        offset,
                        ToString(stored.record.dtype)));
  }
  return stored;
}

std::vector<std::byte> EncodeRecordSections(const ChunkRecord& record) {
  if (record.worker_updates.empty()) return {};
  ByteWriter updates;
  for (const WorkerUpdate& update : record.worker_updates) VisitWorkerUpdate(updates, update);
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
  record.worker_updates.resize(reader.num_left() / kWorkerUpdateBytes);
  for (WorkerUpdate& update : record.worker_updates) VisitWorkerUpdate(reader, update);
  return absl::OkStatus();
}

}  // namespace pushpull
