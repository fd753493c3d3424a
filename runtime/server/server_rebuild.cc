// SPDX-License-Identifier: Apache-2.0
//
// The part of Server that makes shards anew of which nobody is left: it finds what a checkpoint has
// of them; the rest is the lane's.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/server/server.h"
#include "runtime/transport/lane.h"

namespace pushpull {
namespace {

// Whether anything of the shard could be in a checkpoint that the workers do not have.
bool NeedsCheckpoint(const RebuildShard& order, const std::vector<PlacedTensor>& tensors) {
  if (order.checkpoints.empty()) return false;
  const bool needs_value =
      std::any_of(order.chunks.begin(), order.chunks.end(), [](const RebuiltChunk& chunk) {
        return chunk.source == RebuiltChunk::Source::kCheckpoint;
      });
  return needs_value ||
         std::any_of(tensors.begin(), tensors.end(), [&](const PlacedTensor& tensor) {
           return StateFloatsPerValue(tensor.spec.optimizer) > 0 &&
                  std::find(tensor.shards.begin(), tensor.shards.end(), order.shard) !=
                      tensor.shards.end();
         });
}

// Reads the newest complete checkpoint; returns its step.
absl::StatusOr<Step> ReadStored(FileSystem& files,
                                const RebuildShard& order,
                                const std::vector<PlacedTensor>& tensors,
                                const std::function<absl::Status(RestoredChunk)>& deliver) {
  PUSHPULL_ASSIGN_OR_RETURN(const LoadedCheckpoint newest,
                            LoadNewestComplete(files, order.checkpoints));
  PUSHPULL_RETURN_IF_ERROR(ReadChunks(
      files,
      {.folder = newest.folder, .sequence = newest.manifest.sequence, .shards = {order.shard}},
      tensors,
      deliver));
  return newest.manifest.step;
}

}  // namespace

void Server::On(const RebuildShard& message) {
  if (tensors_ == nullptr) return;
  const bool reads_checkpoint = NeedsCheckpoint(message, *tensors_);
  const size_t index = LaneOf(message.shard, lanes_.size());
  dependencies_.transport.lane(index).Post([message, reads_checkpoint, lane = lanes_[index]] {
    lane->BeginRebuild(message, reads_checkpoint);
  });
  if (!reads_checkpoint) return;
  // A lane ends on its own thread: elsewhere nobody may be the last to hold it.
  dependencies_.disk.Post([message,
                           index,
                           tensors = tensors_,
                           lane = std::weak_ptr<Lane>(lanes_[index]),
                           self = std::weak_ptr<Server*>(self_),
                           dependencies = dependencies_] {
    const Epoch epoch = message.entry.epoch;
    const auto deliver = [&](RestoredChunk chunk) -> absl::Status {
      if (self.expired()) return absl::CancelledError("the server ends");
      const auto moved = std::make_shared<RestoredChunk>(std::move(chunk));
      dependencies.transport.lane(index).Post([moved, epoch, lane] {
        if (const auto taker = lane.lock()) taker->TakeStored(epoch, std::move(*moved));
      });
      return absl::OkStatus();
    };
    const absl::StatusOr<Step> read = ReadStored(dependencies.files, message, *tensors, deliver);
    dependencies.transport.lane(index).Post([shard = message.shard, epoch, read, lane] {
      if (const auto taker = lane.lock()) {
        taker->EndReading(
            shard, epoch, read.status(), read.ok() ? std::optional<Step>(*read) : std::nullopt);
      }
    });
  });
}

}  // namespace pushpull
