// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/checkpoint_reader.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/optim/optimizer.h"
#include "runtime/shard/chunk.h"
#include "runtime/store/row_layout.h"

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

std::vector<ChunkToRead> FindWanted(const CheckpointManifest& manifest,
                                    const std::vector<size_t>& positions,
                                    const std::vector<PlacedTensor>& tensors,
                                    const std::set<ShardId>& shards) {
  std::vector<ChunkToRead> wanted;
  for (const PlacedTensor& tensor : tensors) {
    const uint64_t tensor_bytes = PlacedBytes(tensor.spec).value_or(0);
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      if (!shards.contains(tensor.shards[i])) continue;
      const ChunkId chunk{tensor.first_chunk.value() + i};
      wanted.push_back({.chunk = chunk,
                        .shard = tensor.shards[i],
                        .tensor = &tensor,
                        .bytes = std::min(kChunkBytes, tensor_bytes - i * kChunkBytes),
                        .stored = &manifest.chunks[positions[chunk.value()]]});
    }
  }
  absl::c_sort(wanted, [](const ChunkToRead& a, const ChunkToRead& b) {
    return std::tuple(a.stored->file, a.stored->place.offset) <
           std::tuple(b.stored->file, b.stored->place.offset);
  });
  return wanted;
}

absl::StatusOr<ChunkSnapshot> ReadOne(const ChunkFileReader& file, const ChunkToRead& wanted) {
  ChunkSnapshot read;
  uint64_t value_bytes = wanted.bytes;
  uint64_t state_bytes = wanted.bytes * StateFloatsPerValue(wanted.tensor->spec.optimizer);
  if (wanted.tensor->spec.rows) {
    // As many rows as were saved: Chunk::Restore checks them.
    PUSHPULL_ASSIGN_OR_RETURN(const StoredRecord stored,
                              file.ReadHeader(wanted.stored->place.offset));
    value_bytes = kRowHeaderBytes;
    state_bytes = stored.parts.state_bytes;
  }
  PUSHPULL_ASSIGN_OR_RETURN(read.value, HostBuffer::Uninitialized(value_bytes));
  PUSHPULL_ASSIGN_OR_RETURN(read.optimizer_state, HostBuffer::Uninitialized(state_bytes));
  PUSHPULL_ASSIGN_OR_RETURN(
      const ChunkRecord record,
      file.Read(wanted.stored->place, read.value.bytes(), read.optimizer_state.bytes()));
  read.version = record.version;
  read.updates = record.updates;
  for (const WorkerUpdate& update : record.worker_updates)
    read.clocks.push_back({update.worker, Step{update.update}});
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
  const std::vector<std::string> differences = CompareTensors(manifest, specs);
  if (!differences.empty())
    return absl::InvalidArgumentError(absl::StrCat(order.folder, ": ", differences.front()));
  const std::vector<size_t> positions = MatchChunks(manifest, specs);

  std::map<uint32_t, ChunkFileReader> open;
  for (const ChunkToRead& wanted :
       FindWanted(manifest, positions, tensors, {order.shards.begin(), order.shards.end()})) {
    const uint32_t number = wanted.stored->file;
    if (!open.contains(number)) {
      open.clear();  // chunks come in file order: the previous file is done
      PUSHPULL_ASSIGN_OR_RETURN(
          ChunkFileReader file,
          ChunkFileReader::Open(files, JoinPath(order.folder, manifest.files[number].name)));
      open.emplace(number, std::move(file));
    }
    PUSHPULL_ASSIGN_OR_RETURN(ChunkSnapshot read, ReadOne(open.at(number), wanted));
    if (order.version) {
      read.version = *order.version;
      read.clocks.clear();
    }
    PUSHPULL_RETURN_IF_ERROR(deliver({wanted.chunk, wanted.shard, std::move(read)}));
  }
  return absl::OkStatus();
}

}  // namespace pushpull
