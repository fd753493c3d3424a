// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/stored_chunks.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/optim/optimizer.h"
#include "runtime/store/row_layout.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {
namespace {

// A process has descriptors for a thousand files or more, and a job may have that many lanes.
constexpr size_t kOpenFilesMax = 128;

}  // namespace

absl::StatusOr<ChunkRecord> StoredChunks::Read(const StoredChunk& chunk,
                                               std::span<std::byte> value,
                                               std::span<std::byte> state) const {
  PUSHPULL_ASSIGN_OR_RETURN(const std::shared_ptr<const ChunkFileReader> file, FileOf(chunk));
  return file->Read(chunk.place, value, state);
}

absl::StatusOr<ChunkRecord> StoredChunks::ReadValue(const StoredChunk& chunk,
                                                    std::span<std::byte> value) const {
  PUSHPULL_ASSIGN_OR_RETURN(const std::shared_ptr<const ChunkFileReader> file, FileOf(chunk));
  PUSHPULL_ASSIGN_OR_RETURN(StoredRecord stored, ReadHeader(chunk));
  PUSHPULL_RETURN_IF_ERROR(CheckSize(chunk, "value", stored.parts.value_bytes, value.size()));
  PUSHPULL_RETURN_IF_ERROR(file->ReadValue(stored, value));
  return std::move(stored.record);
}

absl::StatusOr<ChunkRecord> StoredChunks::ReadOptimizerState(const StoredChunk& chunk,
                                                             std::span<std::byte> state) const {
  PUSHPULL_ASSIGN_OR_RETURN(const std::shared_ptr<const ChunkFileReader> file, FileOf(chunk));
  PUSHPULL_ASSIGN_OR_RETURN(StoredRecord stored, ReadHeader(chunk));
  PUSHPULL_RETURN_IF_ERROR(
      CheckSize(chunk, "optimizer state", stored.parts.state_bytes, state.size()));
  PUSHPULL_RETURN_IF_ERROR(file->ReadState(stored, state));
  return std::move(stored.record);
}

absl::StatusOr<StoredRecord> StoredChunks::ReadHeader(const StoredChunk& chunk) const {
  PUSHPULL_ASSIGN_OR_RETURN(const std::shared_ptr<const ChunkFileReader> file, FileOf(chunk));
  PUSHPULL_ASSIGN_OR_RETURN(StoredRecord stored, file->ReadHeader(chunk.place.offset));
  const std::string difference = DifferenceFrom(chunk.place, stored);
  if (!difference.empty()) return DamageError(PathOf(chunk), chunk.place.offset, difference);
  return stored;
}

absl::StatusOr<RowsOfImage> StoredChunks::ReadRows(const StoredChunk& chunk,
                                                   const TensorSpec& tensor) const {
  PUSHPULL_ASSIGN_OR_RETURN(const StoredRecord stored, ReadHeader(chunk));
  PUSHPULL_ASSIGN_OR_RETURN(HostBuffer header, HostBuffer::Uninitialized(kRowHeaderBytes));
  PUSHPULL_ASSIGN_OR_RETURN(HostBuffer image, HostBuffer::Uninitialized(stored.parts.state_bytes));
  PUSHPULL_RETURN_IF_ERROR(Read(chunk, header.bytes(), image.bytes()).status());
  const size_t dim = RowDim(tensor);
  absl::StatusOr<RowsOfImage> rows = ParseRowImage(
      header.bytes(), image.bytes(), dim, dim * StateFloatsPerValue(tensor.optimizer));
  if (rows.ok()) return rows;
  return DamageError(
      PathOf(chunk),
      chunk.place.offset,
      absl::StrCat("the rows of tensor ", tensor.name, " ", rows.status().message()));
}

absl::StatusOr<std::shared_ptr<const ChunkFileReader>> StoredChunks::FileOf(
    const StoredChunk& chunk) const {
  MutexLock lock(mu_);
  std::shared_ptr<const ChunkFileReader>& file = open_[chunk.file];
  if (file != nullptr) return file;
  absl::StatusOr<ChunkFileReader> opened = ChunkFileReader::Open(files_, PathOf(chunk));
  if (!opened.ok()) {
    open_.erase(chunk.file);
    return opened.status();
  }
  auto shared = std::make_shared<const ChunkFileReader>(*std::move(opened));
  if (open_.size() > kOpenFilesMax) open_.clear();
  open_[chunk.file] = shared;
  return shared;
}

std::string StoredChunks::PathOf(const StoredChunk& chunk) const {
  return JoinPath(folder_, manifest_.files[chunk.file].name);
}

absl::Status StoredChunks::CheckSize(const StoredChunk& chunk,
                                     absl::string_view what,
                                     uint64_t stored,
                                     uint64_t wanted) const {
  if (stored == wanted) return absl::OkStatus();
  return DamageError(PathOf(chunk),
                     chunk.place.offset,
                     absl::StrCat("chunk ",
                                  chunk.place.chunk.value(),
                                  " has ",
                                  stored,
                                  " bytes of ",
                                  what,
                                  ", expected ",
                                  wanted));
}

}  // namespace pushpull
