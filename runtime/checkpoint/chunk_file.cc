// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/chunk_file.h"

#include <xxhash.h>

#include <array>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"

namespace pushpull {
namespace {

// "PuPuCkpD"
constexpr uint64_t kFileMagic = 0x44706B4375507550;

constexpr size_t kFileChecksumAt = kFileHeaderBytes - sizeof(uint64_t);

using FileHeaderBytes = std::array<std::byte, kFileHeaderBytes>;
using RecordHeaderBytes = std::array<std::byte, kRecordHeaderBytes>;

uint64_t HeaderChecksum(const FileHeaderBytes& bytes) {
  return LoadNumber<uint64_t>(std::span(bytes).subspan(kFileChecksumAt));
}

// The fields after the version, as in docs/decisions/0009-checkpoint-format.md.
template <typename Visit, typename FileId>
void VisitFileId(Visit& visit, FileId& id) {
  visit(Reserved<6>{}, id.server, id.lane, id.step, id.attempt, Reserved<16>{});
}

FileHeaderBytes EncodeFileHeader(const ChunkFileId& id) {
  FileHeaderBytes bytes;
  HeaderWriter put(bytes);
  put(kFileMagic, kCheckpointVersion);
  VisitFileId(put, id);
  put(ChecksumBytes(std::span(bytes).first(kFileChecksumAt)));
  return bytes;
}

absl::StatusOr<ChunkFileId> DecodeFileHeader(const FileHeaderBytes& bytes,
                                             const std::string& path) {
  ByteReader get(bytes);
  if (get.Get<uint64_t>() != kFileMagic)
    return DamageError(path, 0, "is no data file of a checkpoint");
  if (HeaderChecksum(bytes) != ChecksumBytes(std::span(bytes).first(kFileChecksumAt)))
    return DamageError(path, 0, "wrong checksum of the file's header");
  PUSHPULL_RETURN_IF_ERROR(CheckVersion(get.Get<uint16_t>(), path));
  ChunkFileId id;
  VisitFileId(get, id);
  return id;
}

// Offsets in the file.
uint64_t ValueAt(const StoredRecord& stored) {
  return stored.offset + kRecordHeaderBytes + stored.parts.section_bytes;
}

uint64_t StateAt(const StoredRecord& stored) {
  return ValueAt(stored) + stored.parts.value_bytes;
}

absl::Status PartDamage(const std::string& path,
                        const StoredRecord& stored,
                        uint64_t offset,
                        absl::string_view what) {
  return DamageError(
      path, offset, absl::StrCat("wrong ", what, " of chunk ", stored.record.chunk.value()));
}

}  // namespace

std::string ChunkFileName(const ChunkFileId& id) {
  return absl::StrFormat(
      "server-%05d-lane-%02d-%016x.chunks", id.server.value(), id.lane, id.attempt);
}

std::string StepFolder(const std::string& dir, Step step) {
  return absl::StrFormat("%s/step-%012d", dir, step.value());
}

uint64_t ExtendFileChecksum(uint64_t checksum, uint64_t record_checksum) {
  return XXH3_64bits_withSeed(&record_checksum, sizeof record_checksum, checksum);
}

std::string DifferenceFrom(const ChunkPlace& place, const StoredRecord& stored) {
  if (stored.checksum == place.checksum && stored.record.chunk == place.chunk &&
      stored.record.version == place.version && stored.parts.RecordBytes() == place.bytes) {
    return "";
  }
  return absl::StrFormat("here is not version %d of chunk %d that the manifest speaks of",
                         place.version.value(),
                         place.chunk.value());
}

absl::StatusOr<std::unique_ptr<ChunkFileWriter>> ChunkFileWriter::Create(FileSystem& file_system,
                                                                         const std::string& dir,
                                                                         const ChunkFileId& id) {
  const std::string folder = StepFolder(dir, id.step);
  const std::string name = ChunkFileName(id);
  PUSHPULL_RETURN_IF_ERROR(file_system.CreateFolders(folder));
  PUSHPULL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                            file_system.CreateFile(JoinPath(folder, name)));
  std::unique_ptr<ChunkFileWriter> writer(new ChunkFileWriter(file_system, folder, name));
  writer->file_ = std::move(file);
  const FileHeaderBytes header = EncodeFileHeader(id);
  PUSHPULL_RETURN_IF_ERROR(writer->file_->Append(std::array{std::span<const std::byte>(header)}));
  writer->summary_.bytes = header.size();
  writer->summary_.checksum = HeaderChecksum(header);
  return writer;
}

ChunkFileWriter::~ChunkFileWriter() {
  if (is_finished_) return;
  file_.reset();
  // Without a manifest it is not part of a checkpoint, removed or not.
  file_system_.RemoveFile(JoinPath(folder_, summary_.name)).IgnoreError();
}

absl::Status ChunkFileWriter::Append(const ChunkRecord& record,
                                     std::span<const std::byte> value,
                                     std::span<const std::byte> state) {
  PUSHPULL_CHECK(!is_finished_);
  PUSHPULL_CHECK(!value.empty() && value.size() <= kChunkBytes && state.size() <= kStateBytesMax);
  PUSHPULL_RETURN_IF_ERROR(status_);
  const std::vector<std::byte> sections = EncodeRecordSections(record);
  PUSHPULL_CHECK(sections.size() <= kRecordSectionBytesMax);
  const RecordParts parts{.section_bytes = static_cast<uint32_t>(sections.size()),
                          .value_bytes = static_cast<uint32_t>(value.size()),
                          .state_bytes = static_cast<uint32_t>(state.size()),
                          .section_checksum = ChecksumBytes(sections),
                          .value_checksum = ChecksumBytes(value),
                          .state_checksum = ChecksumBytes(state)};
  RecordHeaderBytes header;
  const uint64_t checksum = EncodeRecordHeader(record, parts, header);
  static constexpr std::array<std::byte, kRecordAlignment> kZeros{};
  const std::array<std::span<const std::byte>, 5> buffers{
      header, sections, value, state, std::span(kZeros).first(parts.PaddingBytes())};
  status_ = file_->Append(buffers);
  PUSHPULL_RETURN_IF_ERROR(status_);
  summary_.chunks.push_back({.chunk = record.chunk,
                             .version = record.version,
                             .offset = summary_.bytes,
                             .bytes = static_cast<uint32_t>(parts.RecordBytes()),
                             .checksum = checksum});
  summary_.bytes += parts.RecordBytes();
  summary_.checksum = ExtendFileChecksum(summary_.checksum, checksum);
  return absl::OkStatus();
}

absl::StatusOr<ChunkFileSummary> ChunkFileWriter::Finish() {
  PUSHPULL_CHECK(!is_finished_);
  PUSHPULL_RETURN_IF_ERROR(status_);
  status_ = file_->Sync();
  if (status_.ok()) status_ = file_system_.SyncFolder(folder_);
  PUSHPULL_RETURN_IF_ERROR(status_);
  is_finished_ = true;
  file_.reset();
  return std::move(summary_);
}

absl::StatusOr<ChunkFileReader> ChunkFileReader::Open(FileSystem& file_system,
                                                      const std::string& path) {
  PUSHPULL_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, file_system.OpenFile(path));
  ChunkFileReader reader(path, std::move(file));
  FileHeaderBytes header;
  PUSHPULL_RETURN_IF_ERROR(reader.file_->ReadAt(0, std::array{std::span<std::byte>(header)}));
  PUSHPULL_ASSIGN_OR_RETURN(reader.id_, DecodeFileHeader(header, path));
  reader.header_checksum_ = HeaderChecksum(header);
  return reader;
}

absl::StatusOr<StoredRecord> ChunkFileReader::ReadHeader(uint64_t offset) const {
  RecordHeaderBytes bytes;
  PUSHPULL_RETURN_IF_ERROR(file_->ReadAt(offset, std::array{std::span<std::byte>(bytes)}));
  PUSHPULL_ASSIGN_OR_RETURN(StoredRecord stored, DecodeRecordHeader(bytes, path_, offset));
  if (stored.parts.section_bytes == 0) return stored;
  const uint64_t sections_at = offset + kRecordHeaderBytes;
  std::vector<std::byte> sections(stored.parts.section_bytes);
  PUSHPULL_RETURN_IF_ERROR(file_->ReadAt(sections_at, std::array{std::span<std::byte>(sections)}));
  if (ChecksumBytes(sections) != stored.parts.section_checksum)
    return DamageError(path_, sections_at, "wrong checksum of a chunk's sections");
  PUSHPULL_RETURN_IF_ERROR(DecodeRecordSections(sections, path_, sections_at, stored.record));
  return stored;
}

absl::Status ChunkFileReader::ReadParts(const StoredRecord& stored,
                                        std::span<std::byte> value,
                                        std::span<std::byte> state) const {
  const RecordParts& parts = stored.parts;
  PUSHPULL_CHECK(value.size() == parts.value_bytes && state.size() == parts.state_bytes);
  std::array<std::byte, kRecordAlignment> zeros;
  const std::span<std::byte> padding = std::span(zeros).first(parts.PaddingBytes());
  const std::array<std::span<std::byte>, 3> buffers{value, state, padding};
  PUSHPULL_RETURN_IF_ERROR(file_->ReadAt(ValueAt(stored), buffers));
  PUSHPULL_RETURN_IF_ERROR(CheckValue(stored, value));
  PUSHPULL_RETURN_IF_ERROR(CheckState(stored, state));
  const bool is_zero = absl::c_all_of(padding, [](std::byte b) { return b == std::byte{0}; });
  if (is_zero) return absl::OkStatus();
  return PartDamage(path_, stored, StateAt(stored) + parts.state_bytes, "bytes after the state");
}

absl::Status ChunkFileReader::ReadValue(const StoredRecord& stored,
                                        std::span<std::byte> value) const {
  PUSHPULL_CHECK(value.size() == stored.parts.value_bytes);
  PUSHPULL_RETURN_IF_ERROR(file_->ReadAt(ValueAt(stored), std::array{value}));
  return CheckValue(stored, value);
}

absl::Status ChunkFileReader::ReadState(const StoredRecord& stored,
                                        std::span<std::byte> state) const {
  PUSHPULL_CHECK(state.size() == stored.parts.state_bytes);
  PUSHPULL_RETURN_IF_ERROR(file_->ReadAt(StateAt(stored), std::array{state}));
  return CheckState(stored, state);
}

absl::Status ChunkFileReader::CheckValue(const StoredRecord& stored,
                                         std::span<const std::byte> value) const {
  if (ChecksumBytes(value) == stored.parts.value_checksum) return absl::OkStatus();
  return PartDamage(path_, stored, ValueAt(stored), "checksum of the value");
}

absl::Status ChunkFileReader::CheckState(const StoredRecord& stored,
                                         std::span<const std::byte> state) const {
  if (ChecksumBytes(state) == stored.parts.state_checksum) return absl::OkStatus();
  return PartDamage(path_, stored, StateAt(stored), "checksum of the optimizer's state");
}

absl::StatusOr<ChunkRecord> ChunkFileReader::Read(const ChunkPlace& place,
                                                  std::span<std::byte> value,
                                                  std::span<std::byte> state) const {
  PUSHPULL_ASSIGN_OR_RETURN(StoredRecord stored, ReadHeader(place.offset));
  const std::string difference = DifferenceFrom(place, stored);
  if (!difference.empty()) return DamageError(path_, place.offset, difference);
  const RecordParts& parts = stored.parts;
  if (parts.value_bytes != value.size() || parts.state_bytes != state.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: chunk %d has %d bytes of value and %d of optimizer state, expected %d and %d",
        path_,
        place.chunk.value(),
        parts.value_bytes,
        parts.state_bytes,
        value.size(),
        state.size()));
  }
  PUSHPULL_RETURN_IF_ERROR(ReadParts(stored, value, state));
  return std::move(stored.record);
}

}  // namespace pushpull
