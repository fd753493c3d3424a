// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/lane_capture.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

void LaneCapture::End(uint64_t attempt) {
  if (!order_ || order_->attempt != attempt) return;
  order_.reset();
  missing_.clear();
}

void LaneCapture::Begin(const Capture& order, const std::vector<ShardSlot*>& shards) {
  order_ = order;
  missing_.clear();
  captured_.clear();
  has_finished_ = false;
  Step highest;
  for (ShardSlot* shard : shards) {
    if (!shard->member.reigns()) continue;
    Add(*shard);
    for (const ChunkSlot* slot : shard->chunks) highest = std::max(highest, slot->state.version());
  }
  const bool is_of_one_step = order.versions == ChunkVersions::kOfOneStep;
  if (is_of_one_step && highest > order.step) {
    return Refuse(absl::AbortedError(absl::StrCat(
                      "a chunk has version ", highest.value(), ", past ", order.step.value())),
                  highest);
  }
  const auto late = std::find_if(missing_.begin(), missing_.end(), [&](const ChunkSlot* slot) {
    return slot->state.version() < order.step;
  });
  if (is_of_one_step && order.is_last && late != missing_.end()) {
    return Refuse(
        absl::FailedPreconditionError(absl::StrCat((*late)->Name(),
                                                   " has version ",
                                                   (*late)->state.version().value(),
                                                   " at the end of the job, others ",
                                                   order.step.value(),
                                                   ": every tensor must be pushed in every step")),
        highest);
  }
  for (ShardSlot* shard : shards) Look(*shard);
  FinishIfComplete();
}

void LaneCapture::Refuse(absl::Status why, Step highest) {
  const uint64_t attempt = order_->attempt;
  order_.reset();
  missing_.clear();
  refuse_({.attempt = attempt, .status = std::move(why), .highest_version = highest, .files = {}});
}

void LaneCapture::Add(ShardSlot& shard) {
  if (!shard.member.reigns()) return;
  for (ChunkSlot* slot : shard.chunks) {
    if (slot->captured_in == order_->attempt) continue;
    // What has passed the step before it came here was captured by the primary of then, or the
    // attempt fails for want of it.
    if (order_->versions == ChunkVersions::kOfOneStep && slot->state.version() > order_->step)
      continue;
    missing_.insert(slot);
    has_finished_ = false;
  }
}

void LaneCapture::OnPublishable(ShardSlot& shard) {
  if (!order_) return;
  Add(shard);
  Look(shard);
  FinishIfComplete();
}

void LaneCapture::OnPublishable(ChunkSlot& slot) {
  if (!order_ || !missing_.contains(&slot)) return;
  CaptureIfDue(slot, slot.shard->member.MayPublish(slot.index_in_shard));
  FinishIfComplete();
}

void LaneCapture::BeforeApply(ChunkSlot& slot) {
  if (!order_ || !missing_.contains(&slot)) return;
  CaptureIfDue(slot, true);
  FinishIfComplete();
}

void LaneCapture::OnReignEnded(ShardSlot& shard) {
  if (!order_) return;
  for (ChunkSlot* slot : shard.chunks) missing_.erase(slot);
  FinishIfComplete();
}

void LaneCapture::Look(ShardSlot& shard) {
  for (ChunkSlot* slot : shard.chunks) {
    if (!order_) return;
    if (missing_.contains(slot)) CaptureIfDue(*slot, shard.member.MayPublish(slot->index_in_shard));
  }
}

void LaneCapture::CaptureIfDue(ChunkSlot& slot, bool is_publishable) {
  const Step version = slot.state.version();
  if (!slot.state.is_initialized()) return;
  if (order_->versions == ChunkVersions::kOfOneStep) {
    if (version > order_->step) {
      // Versions jump where a mode ends.
      return Refuse(absl::AbortedError(absl::StrCat(
                        slot.Name(), " went to version ", version.value(), " at once")),
                    version);
    }
    if (version < order_->step || !is_publishable) return;
  }
  missing_.erase(&slot);
  slot.captured_in = order_->attempt;
  ChunkRecord record{.chunk = slot.id(),
                     .tensor = slot.tensor.id,
                     .index = slot.index,
                     .version = version,
                     .updates = slot.state.updates(),
                     .epoch = slot.shard->member.chunk_epoch(slot.index_in_shard),
                     .dtype = slot.tensor.spec.dtype};
  for (const WorkerClock& clock : slot.clocks.entries())
    record.worker_updates.push_back({clock.worker, clock.clock.value()});
  writer_->Write(order_->attempt,
                 lane_,
                 {.record = std::move(record),
                  .value = slot.state.value(),
                  .state = slot.state.optimizer_state()});
  slot.state.BeginCapture(writer_->spares());
  captured_.push_back(&slot);
}

void LaneCapture::FinishIfComplete() {
  if (!order_ || !missing_.empty() || std::exchange(has_finished_, true)) return;
  // When they are written, chunks that have not changed since may be changed in place again.
  writer_->FinishLane(order_->attempt,
                      lane_,
                      [slots = std::exchange(captured_, {}),
                       attempt = order_->attempt,
                       self = std::weak_ptr<LaneCapture*>(self_),
                       &executor = executor_] {
                        executor.Post([slots, attempt, self] {
                          if (!self.lock()) return;
                          for (ChunkSlot* slot : slots)
                            if (slot->captured_in == attempt) slot->state.EndCapture();
                        });
                      });
}

}  // namespace pushpull
