// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/verify.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/chunk_file.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/optim/optimizer.h"
#include "runtime/store/row_table.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {
namespace {

// The chunks that the manifest lists in one file, by offset.
using ExpectedChunks = std::map<uint64_t, const StoredChunk*>;

// One pass over a checkpoint's files. Thread-confined.
class Verifier {
 public:
  Verifier(FileSystem& file_system, std::string folder, CheckpointManifest manifest)
      : file_system_(file_system), folder_(std::move(folder)), manifest_(std::move(manifest)) {}

  absl::StatusOr<VerifyReport> Run() {
    PUSHPULL_ASSIGN_OR_RETURN(table_, MakeChunkTable(manifest_.tensors));
    PUSHPULL_ASSIGN_OR_RETURN(value_, HostBuffer::Uninitialized(kChunkBytes));
    PUSHPULL_ASSIGN_OR_RETURN(state_, HostBuffer::Uninitialized(kStateBytesMax));
    report_.step = manifest_.step;
    std::vector<ExpectedChunks> expected(manifest_.files.size());
    for (const StoredChunk& chunk : manifest_.chunks)
      expected[chunk.file].emplace(chunk.place.offset, &chunk);
    for (size_t i = 0; i < manifest_.files.size(); ++i)
      PUSHPULL_RETURN_IF_ERROR(CheckFile(manifest_.files[i], std::move(expected[i])));
    return std::move(report_);
  }

 private:
  void Report(const std::string& file, std::optional<uint64_t> offset, absl::string_view text) {
    ++report_.num_problems;
    if (report_.problems.size() < kVerifyProblemsMax)
      report_.problems.push_back({.file = file, .offset = offset, .text = std::string(text)});
  }

  // Damage becomes a problem; any other error is returned.
  absl::Status Take(const std::string& file, const absl::Status& status) {
    if (!absl::IsDataLoss(status)) return status;
    Report(file, DamageOffset(status), status.message());
    return absl::OkStatus();
  }

  void ReportAt(const std::string& file, uint64_t offset, absl::string_view what) {
    Report(file, offset, DamageError(file, offset, what).message());
  }

  absl::Status CheckFile(const CheckpointFile& file, ExpectedChunks expected) {
    const std::string path = JoinPath(folder_, file.name);
    ++report_.num_files;
    const absl::StatusOr<ChunkFileReader> reader = ChunkFileReader::Open(file_system_, path);
    if (absl::IsNotFound(reader.status())) {
      Report(
          path, std::nullopt, absl::StrCat(path, ": the manifest names it, and it is not there"));
      return absl::OkStatus();
    }
    if (!reader.ok()) return Take(path, reader.status());
    if (reader->num_bytes() != file.bytes) {
      ReportAt(path,
               std::min(reader->num_bytes(), file.bytes),
               absl::StrCat("has ", reader->num_bytes(), " bytes, expected ", file.bytes));
    }
    if (reader->id().step != manifest_.step)
      ReportAt(path, 0, absl::StrCat("this file is of step ", reader->id().step.value()));
    PUSHPULL_RETURN_IF_ERROR(CheckRecords(file, path, *reader, expected));
    for (const auto& [offset, chunk] : expected) {
      const uint64_t id = chunk->place.chunk.value();
      ReportAt(path, offset, absl::StrCat("no record starts where the manifest has chunk ", id));
    }
    return absl::OkStatus();
  }

  // Removes the records that it finds from `expected`.
  absl::Status CheckRecords(const CheckpointFile& file,
                            const std::string& path,
                            const ChunkFileReader& reader,
                            ExpectedChunks& expected) {
    uint64_t checksum = reader.header_checksum();
    uint64_t num_records = 0;
    bool is_whole = true;
    for (uint64_t offset = kFileHeaderBytes; offset < reader.num_bytes();) {
      const absl::StatusOr<StoredRecord> stored = reader.ReadHeader(offset);
      if (stored.ok()) {
        PUSHPULL_RETURN_IF_ERROR(Take(path, CheckRecord(path, reader, *stored, expected)));
        checksum = ExtendFileChecksum(checksum, stored->checksum);
        offset += stored->parts.RecordBytes();
        report_.bytes += stored->parts.RecordBytes();
        ++num_records;
        continue;
      }
      PUSHPULL_RETURN_IF_ERROR(Take(path, stored.status()));
      is_whole = false;
      // Its length cannot be trusted; the manifest says where the next one is.
      expected.erase(offset);
      const auto next = expected.upper_bound(offset);
      if (next == expected.end()) break;
      offset = next->first;
    }
    report_.num_records += num_records;
    if (is_whole && (num_records != file.num_records || checksum != file.checksum)) {
      ReportAt(path,
               0,
               absl::StrFormat("the records are not those of the manifest: %d, expected %d%s",
                               num_records,
                               file.num_records,
                               num_records == file.num_records ? " with another checksum" : ""));
    }
    return absl::OkStatus();
  }

  absl::Status CheckRecord(const std::string& path,
                           const ChunkFileReader& reader,
                           const StoredRecord& stored,
                           ExpectedChunks& expected) {
    const auto found = expected.find(stored.offset);
    const StoredChunk* chunk = found == expected.end() ? nullptr : found->second;
    if (chunk != nullptr) expected.erase(found);
    const std::string wrong = Mismatch(stored, chunk);
    if (!wrong.empty()) return DamageError(path, stored.offset, wrong);
    return reader.ReadParts(stored,
                            value_.bytes().first(stored.parts.value_bytes),
                            state_.bytes().first(stored.parts.state_bytes));
  }

  // How the record contradicts the manifest and the tensors; empty: they agree. `chunk` is null for
  // a record that the manifest leaves out.
  std::string Mismatch(const StoredRecord& stored, const StoredChunk* chunk) const {
    const std::optional<ChunkLayout> layout = table_.FindChunk(stored.record.chunk);
    if (!layout) return absl::StrCat("there is no chunk ", stored.record.chunk.value());
    const TensorSpec& tensor = manifest_.tensors[layout->tensor.value()];
    if (stored.record.tensor != layout->tensor || stored.record.index != layout->index ||
        stored.record.dtype != MasterOf(tensor.dtype) ||
        !HasSizesOf(stored.parts, *layout, tensor)) {
      return absl::StrFormat("chunk %d does not fit to tensor %s, index %d",
                             stored.record.chunk.value(),
                             tensor.name,
                             layout->index);
    }
    return chunk == nullptr ? "" : DifferenceFrom(chunk->place, stored);
  }

  // There may be any number of rows; their contents are checked when they are restored.
  static bool HasSizesOf(const RecordParts& parts,
                         const ChunkLayout& layout,
                         const TensorSpec& tensor) {
    if (tensor.rows) return parts.value_bytes == kRowHeaderBytes;
    return parts.value_bytes == layout.bytes &&
           parts.state_bytes == layout.bytes * StateFloatsPerValue(tensor.optimizer);
  }

  FileSystem& file_system_;
  const std::string folder_;
  const CheckpointManifest manifest_;
  ChunkTable table_;
  HostBuffer value_;
  HostBuffer state_;
  VerifyReport report_;
};

}  // namespace

absl::StatusOr<VerifyReport> VerifyCheckpoint(FileSystem& file_system, const std::string& folder) {
  const std::string path = JoinPath(folder, kManifestName);
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                            ReadWholeFile(file_system, path, kManifestBytesMax));
  absl::StatusOr<CheckpointManifest> manifest = DecodeManifest(bytes, path);
  if (absl::IsDataLoss(manifest.status())) {
    // Without it, nothing says what the files should contain.
    return VerifyReport{.problems = {{.file = path,
                                      .offset = DamageOffset(manifest.status()),
                                      .text = std::string(manifest.status().message())}},
                        .num_problems = 1};
  }
  PUSHPULL_RETURN_IF_ERROR(manifest.status());
  return Verifier(file_system, folder, *std::move(manifest)).Run();
}

}  // namespace pushpull
