// SPDX-License-Identifier: Apache-2.0
#include "runtime/ring/ring_checkpoint.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/stored_chunks.h"

namespace pushpull {
namespace {

std::vector<TensorSpec> SpecsOf(const RingState& state) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < state.num_tensors(); ++i) specs.push_back(state.spec(i));
  return specs;
}

absl::Status Agree(const std::string& folder, const std::vector<std::string>& differences) {
  if (differences.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(folder, ": ", differences.front()));
}

}  // namespace

absl::StatusOr<StatePart> StatePart::Copy(const RingState& state, uint32_t part, uint32_t parts) {
  StatePart copied;
  for (const RingState::ChunkPlace& place : state.chunks()) {
    if (place.chunk.value() % parts != part) continue;
    Chunk& chunk = copied.chunks_.emplace_back();
    chunk.record = {.chunk = place.chunk,
                    .tensor = TensorId{static_cast<uint32_t>(place.tensor)},
                    .index = place.index,
                    .version = state.mark().step,
                    .updates = state.updates(place.tensor),
                    .epoch = state.mark().made_in};
    PUSHPULL_ASSIGN_OR_RETURN(chunk.value, HostBuffer::Uninitialized(place.value_bytes));
    PUSHPULL_ASSIGN_OR_RETURN(chunk.optimizer_state, HostBuffer::Uninitialized(place.state_bytes));
    state.CopyChunk(place, chunk.value.floats(), chunk.optimizer_state.floats());
  }
  return copied;
}

absl::StatusOr<std::vector<ChunkFileSummary>> StatePart::Write(FileSystem& files,
                                                               const Capture& order) const {
  std::vector<ChunkFileSummary> written;
  if (chunks_.empty()) return written;
  PUSHPULL_ASSIGN_OR_RETURN(
      const std::unique_ptr<ChunkFileWriter> file,
      ChunkFileWriter::Create(
          files,
          order.folder,
          {.step = order.step, .attempt = order.attempt, .server = ServerId{order.part}}));
  for (const Chunk& chunk : chunks_) {
    PUSHPULL_RETURN_IF_ERROR(
        file->Append(chunk.record, chunk.value.bytes(), chunk.optimizer_state.bytes()));
  }
  PUSHPULL_ASSIGN_OR_RETURN(ChunkFileSummary summary, file->Finish());
  written.push_back(std::move(summary));
  return written;
}

absl::Status ReadState(FileSystem& files, const std::string& folder, RingState& state) {
  PUSHPULL_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ReadManifest(files, folder));
  const std::vector<TensorSpec> specs = SpecsOf(state);
  PUSHPULL_RETURN_IF_ERROR(Agree(folder, CompareTensors(manifest, specs)));
  const std::vector<size_t> positions = MatchChunks(manifest, specs);
  StoredChunks chunks(files, folder, manifest);
  for (const RingState::ChunkPlace& place : state.chunks()) {
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer value, HostBuffer::Uninitialized(place.value_bytes));
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer optimizer_state,
                              HostBuffer::Uninitialized(place.state_bytes));
    PUSHPULL_ASSIGN_OR_RETURN(const ChunkRecord record,
                              chunks.Read(manifest.chunks[positions[place.chunk.value()]],
                                          value.bytes(),
                                          optimizer_state.bytes()));
    state.SetChunk(place, value.floats(), optimizer_state.floats(), record.updates);
  }
  return absl::OkStatus();
}

absl::Status ReadValues(FileSystem& files, const std::string& folder, RingState& state) {
  PUSHPULL_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ReadManifest(files, folder));
  const std::vector<TensorSpec> specs = SpecsOf(state);
  PUSHPULL_RETURN_IF_ERROR(Agree(folder, CompareValues(manifest, specs)));
  const std::vector<std::optional<size_t>> positions = MatchValues(manifest, specs);
  StoredChunks chunks(files, folder, manifest);
  for (const RingState::ChunkPlace& place : state.chunks()) {
    const std::optional<size_t> position = positions[place.chunk.value()];
    if (!position) continue;
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer value, HostBuffer::Uninitialized(place.value_bytes));
    PUSHPULL_ASSIGN_OR_RETURN(HostBuffer zeros, HostBuffer::Zeroed(place.state_bytes));
    PUSHPULL_RETURN_IF_ERROR(chunks.ReadValue(manifest.chunks[*position], value.bytes()).status());
    state.SetChunk(place, value.floats(), zeros.floats(), 0);
  }
  return absl::OkStatus();
}

}  // namespace pushpull
