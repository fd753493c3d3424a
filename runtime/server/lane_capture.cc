// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/lane_capture.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace pushpull {

void LaneCapture::End(uint64_t attempt) {
  if (!order_ || order_->attempt != attempt) return;
  order_.reset();
  missing_.clear();
}

void LaneCapture::Begin(const Capture& order) {
  order_ = order;
  missing_.clear();
  captured_.clear();
  has_finished_ = false;
  Step highest;
  for (const auto& [id, shard] : lane_.shards.all()) {
    if (!shard->member().is_primary()) continue;
    Add(*shard);
    for (const auto& chunk : shard->chunks()) highest = std::max(highest, chunk->state().version());
  }
  const bool is_of_one_step = order.versions == ChunkVersions::kOfOneStep;
  if (is_of_one_step && highest > order.step) {
    return Refuse(absl::AbortedError(absl::StrCat(
                      "a chunk has version ", highest.value(), ", past ", order.step.value())),
                  highest);
  }
  const auto late = absl::c_find_if(
      missing_, [&](const Chunk* chunk) { return chunk->state().version() < order.step; });
  if (is_of_one_step && order.is_last && late != missing_.end()) {
    return Refuse(
        absl::FailedPreconditionError(absl::StrCat((*late)->Name(),
                                                   " has version ",
                                                   (*late)->state().version().value(),
                                                   " at the end of the job, others ",
                                                   order.step.value(),
                                                   ": every tensor must be pushed in every step")),
        highest);
  }
  for (const auto& [id, shard] : lane_.shards.all()) CaptureDue(*shard);
  FinishIfComplete();
}

void LaneCapture::Refuse(absl::Status why, Step highest) {
  const uint64_t attempt = order_->attempt;
  order_.reset();
  missing_.clear();
  lane_.notify(Captured{
      .attempt = attempt, .status = std::move(why), .highest_version = highest, .files = {}});
}

void LaneCapture::Add(Shard& shard) {
  if (!shard.member().is_primary()) return;
  for (const auto& chunk : shard.chunks()) {
    const auto last = attempts_.find(chunk.get());
    if (last != attempts_.end() && last->second == order_->attempt) continue;
    // A chunk that passed the step before it came here was captured by its primary at the time, or
    // else the attempt fails because it is missing.
    if (order_->versions == ChunkVersions::kOfOneStep && chunk->state().version() > order_->step)
      continue;
    missing_.insert(chunk.get());
    has_finished_ = false;
  }
}

void LaneCapture::OnPublishable(Shard& shard) {
  if (!order_) return;
  Add(shard);
  CaptureDue(shard);
  FinishIfComplete();
}

void LaneCapture::OnPublishable(Chunk& chunk) {
  CaptureIfMissing(chunk, chunk.shard().member().MayPublish(chunk.index_in_shard()));
}

void LaneCapture::CaptureIfMissing(Chunk& chunk, bool is_publishable) {
  if (!order_ || !missing_.contains(&chunk)) return;
  CaptureIfDue(chunk, is_publishable);
  FinishIfComplete();
}

void LaneCapture::OnDemoted(Shard& shard) {
  if (!order_) return;
  for (const auto& chunk : shard.chunks()) missing_.erase(chunk.get());
  FinishIfComplete();
}

void LaneCapture::CaptureDue(Shard& shard) {
  for (const auto& chunk : shard.chunks()) {
    if (!order_) return;
    if (missing_.contains(chunk.get()))
      CaptureIfDue(*chunk, shard.member().MayPublish(chunk->index_in_shard()));
  }
}

void LaneCapture::CaptureIfDue(Chunk& chunk, bool is_publishable) {
  const Step version = chunk.state().version();
  if (!chunk.state().is_initialized()) return;
  if (order_->versions == ChunkVersions::kOfOneStep) {
    if (version > order_->step) {
      // Versions jump when a mode ends.
      return Refuse(absl::AbortedError(absl::StrCat(
                        chunk.Name(), " went to version ", version.value(), " at once")),
                    version);
    }
    if (version < order_->step || !is_publishable) return;
  }
  absl::StatusOr<ChunkCapture> capture = chunk.BeginCapture(lane_.writer->spares());
  if (!capture.ok()) return Refuse(capture.status(), version);
  missing_.erase(&chunk);
  attempts_[&chunk] = order_->attempt;
  lane_.writer->Write(order_->attempt, lane_.index, *std::move(capture));
  captured_.push_back(&chunk);
}

void LaneCapture::FinishIfComplete() {
  // A shard that arrives later adds chunks; the lane then finishes once more.
  if (!order_ || !missing_.empty() || std::exchange(has_finished_, true)) return;
  // Once they are written, chunks that have not changed since may be changed in place again, except
  // those that a later attempt has captured meanwhile.
  lane_.writer->FinishLane(order_->attempt,
                           lane_.index,
                           [chunks = std::exchange(captured_, {}),
                            attempt = order_->attempt,
                            self = std::weak_ptr<LaneCapture*>(self_),
                            &executor = lane_.executor] {
                             executor.Post([chunks, attempt, self] {
                               const auto capture = self.lock();
                               if (!capture) return;
                               for (Chunk* chunk : chunks)
                                 if ((*capture)->attempts_.at(chunk) == attempt)
                                   chunk->EndCapture();
                             });
                           });
}

}  // namespace pushpull
