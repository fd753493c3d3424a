// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as manifest, as data file and as a record's sections: no crash, no endless work,
// nothing allocated by a claim, and what is accepted is within its limits. The first byte says
// which it is and whether checksums are repaired: otherwise no input would get past them.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/checkpoint/chunk_file.h"
#include "runtime/checkpoint/manifest.h"
#include "tests/fakes/memory_file_system.h"
#include "tests/unit/runtime/checkpoint/sample_checkpoint.h"

namespace pushpull {
namespace {

using Bytes = std::vector<std::byte>;

// Magic, version and checksum of the 64 bytes that every file begins with.
void RepairFileHeader(const char* magic, Bytes& file) {
  std::copy_n(reinterpret_cast<const std::byte*>(magic), 8, file.begin());
  StoreNumber(uint16_t{1}, std::span(file).subspan(8));
  StoreNumber(ChecksumBytes(std::span(file).first(56)), std::span(file).subspan(56));
}

// Gives every section within `bytes` a length that fits and a right checksum.
void RepairSections(std::span<std::byte> bytes) {
  // Of a section without its name: length of the name, rule, length, checksum.
  constexpr size_t kFixedBytes = 2 + 1 + 8 + 8;
  while (bytes.size() >= kFixedBytes) {
    const size_t room = bytes.size() - kFixedBytes;
    const size_t name_bytes =
        std::min<size_t>(LoadNumber<uint16_t>(bytes), std::min<size_t>(room, kTextBytesMax));
    StoreNumber(static_cast<uint16_t>(name_bytes), bytes);
    const size_t length_at = 2 + name_bytes + 1;
    const uint64_t num_bytes =
        std::min<uint64_t>(LoadNumber<uint64_t>(bytes.subspan(length_at)), room - name_bytes);
    StoreNumber(num_bytes, bytes.subspan(length_at));
    const size_t start = name_bytes + kFixedBytes;
    const uint64_t seed = XXH3_64bits(bytes.data(), length_at + 8);
    StoreNumber(uint64_t{XXH3_64bits_withSeed(bytes.data() + start, num_bytes, seed)},
                bytes.subspan(length_at + 8));
    bytes = bytes.subspan(start + num_bytes);
  }
}

void RepairManifest(Bytes& file) {
  if (file.size() < kManifestHeaderBytes) return;
  const std::span<std::byte> body = std::span(file).subspan(kManifestHeaderBytes);
  RepairSections(body);
  StoreNumber(uint64_t{body.size()}, std::span(file).subspan(24));
  StoreNumber(ChecksumBytes(body), std::span(file).subspan(32));
  RepairFileHeader("PuPuCkpM", file);
}

// The first record's header, with parts that fit into the file, and their checksums.
void RepairDataFile(Bytes& file) {
  if (file.size() < kFileHeaderBytes + kRecordHeaderBytes) return;
  RepairFileHeader("PuPuCkpD", file);
  const std::span<std::byte> header = std::span(file).subspan(kFileHeaderBytes, kRecordHeaderBytes);
  std::span<std::byte> parts = std::span(file).subspan(kFileHeaderBytes + kRecordHeaderBytes);
  StoreNumber(uint32_t{0x68437550}, header);
  header[56] = std::byte{1};
  for (size_t part = 0; part < 3; ++part) {
    const std::span<std::byte> length = header.subspan(60 + 4 * part);
    const auto num_bytes = static_cast<uint32_t>(LoadNumber<uint32_t>(length) % (parts.size() + 1));
    StoreNumber(num_bytes, length);
    if (part == 0) RepairSections(parts.first(num_bytes));
    StoreNumber(ChecksumBytes(parts.first(num_bytes)), header.subspan(72 + 8 * part));
    parts = parts.subspan(num_bytes);
  }
  StoreNumber(ChecksumBytes(header.first(120)), header.subspan(120));
}

void ReadManifestBytes(const Bytes& file) {
  const absl::StatusOr<CheckpointManifest> manifest = DecodeManifest(file, "file");
  if (!manifest.ok()) return;
  PUSHPULL_CHECK(CheckManifest(*manifest).ok());
  const absl::StatusOr<CheckpointManifest> again =
      DecodeManifest(EncodeManifest(*manifest), "file");
  PUSHPULL_CHECK(again.ok() && again->chunks == manifest->chunks);
  PUSHPULL_CHECK(again->files == manifest->files && again->system == manifest->system);
  PUSHPULL_CHECK(again->owner == manifest->owner);
  PUSHPULL_CHECK(CompareTensors(*manifest, manifest->tensors).empty());
}

void ReadDataFile(const Bytes& file) {
  MemoryFileSystem files;
  PUSHPULL_CHECK(files.CreateFolders("dir").ok() && files.CreateFile("dir/file").ok());
  files.contents("dir/file") = file;
  const absl::StatusOr<ChunkFileReader> reader = ChunkFileReader::Open(files, "dir/file");
  if (!reader.ok()) return;
  for (uint64_t offset = kFileHeaderBytes; offset < file.size();) {
    const absl::StatusOr<StoredRecord> stored = reader->ReadHeader(offset);
    if (!stored.ok()) return;
    PUSHPULL_CHECK(stored->parts.value_bytes <= kChunkBytes);
    PUSHPULL_CHECK(stored->parts.state_bytes <= kStateBytesMax);
    // Whoever reads on allocates by the header; here by what the file has.
    if (stored->parts.RecordBytes() > file.size()) return;
    Bytes value(stored->parts.value_bytes);
    Bytes state(stored->parts.state_bytes);
    if (!reader->ReadParts(*stored, value, state).ok()) return;
    offset += stored->parts.RecordBytes();
  }
}

// The sample's files: MANIFEST, then the data file.
std::array<Bytes, 2> MakeValidFiles() {
  MemoryFileSystem files;
  const SampleOptions options{.num_servers = 1, .versions = ChunkVersions::kOfEachChunk};
  PUSHPULL_CHECK(WriteSample(files, "dir", options).ok());
  const std::vector<std::string> paths = files.paths();
  PUSHPULL_CHECK(paths.size() == 2);
  return {files.contents(paths[0]), files.contents(paths[1])};
}

// Each three bytes of `edits` are an offset and what to put there.
Bytes Edit(Bytes file, std::span<const std::byte> edits) {
  for (; edits.size() >= 3; edits = edits.subspan(3))
    file[LoadNumber<uint16_t>(edits) % file.size()] = edits[2];
  return file;
}

void Read(uint8_t kind, std::span<const std::byte> input) {
  static const std::array<Bytes, 2> valid = MakeValidFiles();
  const bool is_repaired = (kind & 1) != 0;
  const bool is_data_file = (kind & 2) != 0;
  const bool is_edit = (kind & 4) != 0;
  Bytes file =
      is_edit ? Edit(valid[is_data_file ? 1 : 0], input) : Bytes(input.begin(), input.end());
  if (is_data_file) {
    if (is_repaired) RepairDataFile(file);
    ReadDataFile(file);
  } else {
    if (is_repaired) RepairManifest(file);
    ReadManifestBytes(file);
  }
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  pushpull::Read(data[0], std::as_bytes(std::span(data, size)).subspan(1));
  return 0;
}
