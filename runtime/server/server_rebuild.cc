// SPDX-License-Identifier: Apache-2.0
//
// The part of Server that rebuilds lost shards: it reads what the newest checkpoint has of them;
// the rest is done by the lane (lane_rebuilds.h).
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/optim/optimizer.h"
#include "runtime/server/server.h"

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
  lanes_->Post(lanes_->IndexOf(message.shard), [message, reads_checkpoint](Lane& lane) {
    lane.rebuilds().Begin(message, reads_checkpoint);
  });
  if (!reads_checkpoint) return;
  dependencies_.disk.Post([message,
                           tensors = tensors_,
                           lanes = LaneGroup::Remote(*lanes_),
                           self = std::weak_ptr<Server*>(self_),
                           &files = dependencies_.files] {
    const ShardId shard = message.shard;
    const Epoch epoch = message.entry.epoch;
    const auto deliver = [&](RestoredChunk chunk) -> absl::Status {
      if (self.expired()) return absl::CancelledError("the server ends");
      const auto moved = std::make_shared<RestoredChunk>(std::move(chunk));
      lanes.Post(shard, [moved, epoch](Lane& lane) {
        lane.rebuilds().TakeStored(epoch, std::move(*moved));
      });
      return absl::OkStatus();
    };
    const absl::StatusOr<Step> read = ReadStored(files, message, *tensors, deliver);
    lanes.Post(shard, [shard, epoch, read](Lane& lane) {
      lane.rebuilds().EndReading(
          shard, epoch, read.status(), read.ok() ? std::optional<Step>(*read) : std::nullopt);
    });
  });
}

}  // namespace pushpull
