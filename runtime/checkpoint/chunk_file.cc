// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/chunk_file.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/section.h"

namespace pushpull {
namespace {

// "PuPuCkpD"
constexpr uint64_t kFileMagic = 0x44706B4375507550;

// Offsets of docs/decisions/0009-checkpoint-format.md. What is not named is zero in version 1.
enum FileOffset : size_t {
  kFileMagicAt = 0,
  kFileVersionAt = 8,
  kServerAt = 16,
  kLaneAt = 20,
  kStepAt = 24,
  kAttemptAt = 32,
  kFileHeaderChecksumAt = 56,
};

using FileHeaderBytes = std::array<std::byte, kFileHeaderBytes>;
using RecordHeaderBytes = std::array<std::byte, kRecordHeaderBytes>;

uint64_t HeaderChecksum(const FileHeaderBytes& bytes) {
  return LoadNumber<uint64_t>(std::span(bytes).subspan(kFileHeaderChecksumAt));
}

FileHeaderBytes EncodeFileHeader(const ChunkFileId& id) {
  FileHeaderBytes bytes{};
  const auto put = [&bytes](FileOffset at, auto number) {
    StoreNumber(number, std::span(bytes).subspan(at));
  };
  put(kFileMagicAt, kFileMagic);
  put(kFileVersionAt, kCheckpointVersion);
  put(kServerAt, id.server.value());
  put(kLaneAt, id.lane);
  put(kStepAt, id.step.value());
  put(kAttemptAt, id.attempt);
  put(kFileHeaderChecksumAt, ChecksumBytes(std::span(bytes).first(kFileHeaderChecksumAt)));
  return bytes;
}

absl::StatusOr<ChunkFileId> DecodeFileHeader(const FileHeaderBytes& bytes,
                                             const std::string& path) {
  const auto get = [&bytes]<typename Number>(FileOffset at, Number) {
    return LoadNumber<Number>(std::span(bytes).subspan(at));
  };
  if (get(kFileMagicAt, uint64_t{}) != kFileMagic)
    return DamageError(path, 0, "is no data file of a checkpoint");
  if (HeaderChecksum(bytes) != ChecksumBytes(std::span(bytes).first(kFileHeaderChecksumAt)))
    return DamageError(path, 0, "wrong checksum of the file's header");
  const uint16_t version = get(kFileVersionAt, uint16_t{});
  if (version > kCheckpointVersion) {
    return absl::UnimplementedError(absl::StrCat(path,
                                                 ": has format version ",
                                                 version,
                                                 ", this program reads up to version ",
                                                 kCheckpointVersion));
  }
  return ChunkFileId{.step = Step{get(kStepAt, uint64_t{})},
                     .attempt = get(kAttemptAt, uint64_t{}),
                     .server = ServerId{get(kServerAt, uint32_t{})},
                     .lane = get(kLaneAt, uint32_t{})};
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
  PUSHPULL_RETURN_IF_ERROR(writer->WriteHeader(id));
  return writer;
}

ChunkFileWriter::ChunkFileWriter(FileSystem& file_system, std::string folder, std::string name)
    : file_system_(file_system), folder_(std::move(folder)) {
  summary_.name = std::move(name);
}

ChunkFileWriter::~ChunkFileWriter() {
  if (is_finished_) return;
  file_.reset();
  // Without a manifest it is not a part of anything, removed or not.
  file_system_.RemoveFile(JoinPath(folder_, summary_.name)).IgnoreError();
}

absl::Status ChunkFileWriter::WriteHeader(const ChunkFileId& id) {
  const FileHeaderBytes header = EncodeFileHeader(id);
  const std::array<std::span<const std::byte>, 1> buffers{header};
  PUSHPULL_RETURN_IF_ERROR(file_->Append(buffers));
  summary_.bytes = header.size();
  summary_.checksum = HeaderChecksum(header);
  return absl::OkStatus();
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
  PUSHPULL_RETURN_IF_ERROR(reader.ReadFileHeader());
  return reader;
}

absl::Status ChunkFileReader::ReadFileHeader() {
  FileHeaderBytes bytes;
  const std::array<std::span<std::byte>, 1> buffers{bytes};
  PUSHPULL_RETURN_IF_ERROR(file_->ReadAt(0, buffers));
  PUSHPULL_ASSIGN_OR_RETURN(id_, DecodeFileHeader(bytes, path_));
  header_checksum_ = HeaderChecksum(bytes);
  return absl::OkStatus();
}

absl::StatusOr<StoredRecord> ChunkFileReader::ReadHeader(uint64_t offset) const {
  RecordHeaderBytes bytes;
  const std::array<std::span<std::byte>, 1> header_buffer{bytes};
  PUSHPULL_RETURN_IF_ERROR(file_->ReadAt(offset, header_buffer));
  PUSHPULL_ASSIGN_OR_RETURN(RecordHeader header, DecodeRecordHeader(bytes, path_, offset));
  StoredRecord stored{.record = std::move(header.record),
                      .parts = header.parts,
                      .offset = offset,
                      .checksum = header.checksum};
  if (stored.parts.section_bytes == 0) return stored;
  const uint64_t sections_at = offset + kRecordHeaderBytes;
  std::vector<std::byte> sections(stored.parts.section_bytes);
  const std::array<std::span<std::byte>, 1> section_buffer{sections};
  PUSHPULL_RETURN_IF_ERROR(file_->ReadAt(sections_at, section_buffer));
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
  const uint64_t value_at = stored.offset + kRecordHeaderBytes + parts.section_bytes;
  const uint64_t state_at = value_at + parts.value_bytes;
  std::array<std::byte, kRecordAlignment> zeros;
  const std::span<std::byte> padding = std::span(zeros).first(parts.PaddingBytes());
  const std::array<std::span<std::byte>, 3> buffers{value, state, padding};
  PUSHPULL_RETURN_IF_ERROR(file_->ReadAt(value_at, buffers));
  const auto damage = [&](uint64_t offset, absl::string_view what) {
    return DamageError(
        path_, offset, absl::StrCat("wrong ", what, " of chunk ", stored.record.chunk.value()));
  };
  if (ChecksumBytes(value) != parts.value_checksum)
    return damage(value_at, "checksum of the value");
  if (ChecksumBytes(state) != parts.state_checksum)
    return damage(state_at, "checksum of the optimizer's state");
  const bool is_zero =
      std::all_of(padding.begin(), padding.end(), [](std::byte b) { return b == std::byte{0}; });
  return is_zero ? absl::OkStatus() : damage(state_at + parts.state_bytes, "bytes after the state");
}

absl::StatusOr<ChunkRecord> ChunkFileReader::Read(const ChunkPlace& place,
                                                  std::span<std::byte> value,
                                                  std::span<std::byte> state) const {
  PUSHPULL_ASSIGN_OR_RETURN(StoredRecord stored, ReadHeader(place.offset));
  if (stored.checksum != place.checksum || stored.record.chunk != place.chunk ||
      stored.record.version != place.version || stored.parts.RecordBytes() != place.bytes) {
    return DamageError(path_,
                       place.offset,
                       absl::StrCat("here is not version ",
                                    place.version.value(),
                                    " of chunk ",
                                    place.chunk.value(),
                                    " that the manifest speaks of"));
  }
  if (stored.parts.value_bytes != value.size() || stored.parts.state_bytes != state.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path_,
                                                   ": chunk ",
                                                   place.chunk.value(),
                                                   " has ",
                                                   stored.parts.value_bytes,
                                                   " bytes of value and ",
                                                   stored.parts.state_bytes,
                                                   " of optimizer state, expected ",
                                                   value.size(),
                                                   " and ",
                                                   state.size()));
  }
  PUSHPULL_RETURN_IF_ERROR(ReadParts(stored, value, state));
  return std::move(stored.record);
}

}  // namespace pushpull
