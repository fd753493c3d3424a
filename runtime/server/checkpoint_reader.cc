// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/checkpoint_reader.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/stored_chunks.h"
#include "runtime/optim/optimizer.h"
#include "runtime/shard/chunk.h"
#include "runtime/store/row_layout.h"
#include "runtime/store/row_table.h"
#include "runtime/tensor/sparse_rows.h"

namespace pushpull {
namespace {

// A chunk of the job and where it is stored.
struct ChunkToRead {
  ChunkId chunk;
  ShardId shard;
  const PlacedTensor* tensor = nullptr;
  uint64_t bytes = 0;
  const StoredChunk* stored = nullptr;
};

using Positions = std::vector<std::optional<size_t>>;

// For each chunk of the job, in the order of ids, where the manifest has it.
absl::StatusOr<Positions> FindPositions(const CheckpointManifest& manifest,
                                        const Restore& order,
                                        std::span<const TensorSpec> specs) {
  const std::vector<std::string> differences =
      order.values_only ? CompareValues(manifest, specs) : CompareTensors(manifest, specs);
  if (!differences.empty())
    return absl::InvalidArgumentError(absl::StrCat(order.folder, ": ", differences.front()));
  if (order.values_only) return MatchValues(manifest, specs);
  const std::vector<size_t> all = MatchChunks(manifest, specs);
  return Positions(all.begin(), all.end());
}

std::vector<ChunkToRead> FindWanted(const CheckpointManifest& manifest,
                                    const Positions& positions,
                                    const std::vector<PlacedTensor>& tensors,
                                    const std::set<ShardId>& shards) {
  std::vector<ChunkToRead> wanted;
  for (const PlacedTensor& tensor : tensors) {
    const uint64_t tensor_bytes = PlacedBytes(tensor.spec).value_or(0);
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      if (!shards.contains(tensor.shards[i])) continue;
      const ChunkId chunk{tensor.first_chunk.value() + i};
      const std::optional<size_t> position = positions[chunk.value()];
      if (!position) continue;
      wanted.push_back({.chunk = chunk,
                        .shard = tensor.shards[i],
                        .tensor = &tensor,
                        .bytes = std::min(kChunkBytes, tensor_bytes - i * kChunkBytes),
                        .stored = &manifest.chunks[*position]});
    }
  }
  absl::c_sort(wanted, [](const ChunkToRead& a, const ChunkToRead& b) {
    return std::tuple(a.stored->file, a.stored->place.offset) <
           std::tuple(b.stored->file, b.stored->place.offset);
  });
  return wanted;
}

absl::StatusOr<ChunkSnapshot> ReadOne(const StoredChunks& chunks, const ChunkToRead& wanted) {
  ChunkSnapshot read;
  uint64_t value_bytes = wanted.bytes;
  uint64_t state_bytes = wanted.bytes * StateFloatsPerValue(wanted.tensor->spec.optimizer);
  if (wanted.tensor->spec.rows) {
    // As many rows as were saved: Chunk::Restore checks them.
    PUSHPULL_ASSIGN_OR_RETURN(const StoredRecord stored, chunks.ReadHeader(*wanted.stored));
    value_bytes = kRowHeaderBytes;
    state_bytes = stored.parts.state_bytes;
  }
  PUSHPULL_ASSIGN_OR_RETURN(read.value, HostBuffer::Uninitialized(value_bytes));
  PUSHPULL_ASSIGN_OR_RETURN(read.optimizer_state, HostBuffer::Uninitialized(state_bytes));
  PUSHPULL_ASSIGN_OR_RETURN(
      const ChunkRecord record,
      chunks.Read(*wanted.stored, read.value.bytes(), read.optimizer_state.bytes()));
  read.version = record.version;
  read.updates = record.updates;
  for (const WorkerUpdate& update : record.worker_updates)
    read.clocks.push_back({update.worker, Step{update.update}});
  return read;
}

// The rows of one chunk without what the optimizer of the saved job has kept for them.
absl::Status ReadRowValues(const StoredChunks& chunks,
                           const TensorSpec& saved,
                           const ChunkToRead& wanted,
                           ChunkSnapshot& read) {
  PUSHPULL_ASSIGN_OR_RETURN(const RowsOfImage rows, chunks.ReadRows(*wanted.stored, saved));
  const size_t dim = RowDim(saved);
  PUSHPULL_ASSIGN_OR_RETURN(HostBuffer bytes,
                            HostBuffer::Uninitialized(rows.keys.size() * SparseRowBytes(dim)));
  const MutableSparseRows sparse = SplitSparseRows(bytes.bytes(), dim);
  absl::c_copy(rows.keys, sparse.keys.begin());
  absl::c_copy(rows.values, sparse.values.begin());
  const PlacedTensor& tensor = *wanted.tensor;
  RowTable table(
      tensor.spec, wanted.chunk.value() - tensor.first_chunk.value(), tensor.shards.size());
  PUSHPULL_RETURN_IF_ERROR(table.Install(bytes.bytes()));
  PUSHPULL_ASSIGN_OR_RETURN(RowImage image, table.Image());
  read.value = std::move(image.header);
  read.optimizer_state = std::move(image.rows);
  return absl::OkStatus();
}

absl::StatusOr<ChunkSnapshot> ReadValueOnly(const StoredChunks& chunks,
                                            const CheckpointManifest& manifest,
                                            const ChunkToRead& wanted) {
  ChunkSnapshot read;
  if (wanted.tensor->spec.rows) {
    const auto saved = absl::c_find_if(manifest.tensors, [&](const TensorSpec& tensor) {
      return tensor.name == wanted.tensor->spec.name;
    });
    PUSHPULL_RETURN_IF_ERROR(ReadRowValues(chunks, *saved, wanted, read));
    return read;
  }
  PUSHPULL_ASSIGN_OR_RETURN(read.value, HostBuffer::Uninitialized(wanted.bytes));
  PUSHPULL_ASSIGN_OR_RETURN(
      read.optimizer_state,
      HostBuffer::Zeroed(wanted.bytes * StateFloatsPerValue(wanted.tensor->spec.optimizer)));
  PUSHPULL_RETURN_IF_ERROR(chunks.ReadValue(*wanted.stored, read.value.bytes()).status());
  return read;
}

}  // namespace

absl::Status ReadChunks(FileSystem& files,
                        const Restore& order,
                        const std::vector<PlacedTensor>& tensors,
                        const std::function<absl::Status(RestoredChunk)>& deliver) {
  PUSHPULL_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ReadManifest(files, order.folder));
  if (manifest.sequence != order.sequence) {
    return absl::DataLossError(absl::StrCat(order.folder,
                                            ": is checkpoint number ",
                                            manifest.sequence,
                                            " of its folder, expected ",
                                            order.sequence));
  }
  std::vector<TensorSpec> specs;
  specs.reserve(tensors.size());
  for (const PlacedTensor& tensor : tensors) specs.push_back(tensor.spec);
  PUSHPULL_ASSIGN_OR_RETURN(const Positions positions, FindPositions(manifest, order, specs));
  const StoredChunks chunks(files, order.folder, manifest);
  const std::vector<ChunkToRead> all =
      FindWanted(manifest, positions, tensors, {order.shards.begin(), order.shards.end()});
  for (const ChunkToRead& wanted : all) {
    PUSHPULL_ASSIGN_OR_RETURN(
        ChunkSnapshot read,
        order.values_only ? ReadValueOnly(chunks, manifest, wanted) : ReadOne(chunks, wanted));
    if (order.version) {
      read.version = *order.version;
      read.clocks.clear();
    }
    PUSHPULL_RETURN_IF_ERROR(deliver({wanted.chunk, wanted.shard, std::move(read)}));
  }
  return absl::OkStatus();
}

}  // namespace pushpull
