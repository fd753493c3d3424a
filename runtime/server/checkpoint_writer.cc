// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/checkpoint_writer.h"

#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {

CheckpointWriter::CheckpointWriter(
    ServerId server, size_t lane_count, Executor& disk, FileSystem& files, Reporter report)
    : server_(server),
      lane_count_(lane_count),
      disk_(disk),
      files_(files),
      report_(std::move(report)) {}

void CheckpointWriter::Begin(const Capture& order) {
  wanted_ = order.attempt;
  disk_.Post([self = shared_from_this(), order] {
    // If the attempt is already over, its End follows.
    self->attempt_.emplace();
    self->attempt_->order = order;
  });
}

void CheckpointWriter::End(uint64_t attempt) {
  uint64_t expected = attempt;
  wanted_.compare_exchange_strong(expected, 0);
  disk_.Post([self = shared_from_this(), attempt] {
    if (!self->attempt_ || self->attempt_->order.attempt != attempt) return;
    // Memory that was prepared for a failed attempt serves the next one.
    const bool is_written = self->attempt_->finished_lanes.size() == self->lane_count_;
    if (is_written) self->spares_.Clear();
    self->attempt_.reset();
  });
}

void CheckpointWriter::Post(uint64_t attempt, std::function<void(Attempt&)> task) {
  disk_.Post([self = shared_from_this(), attempt, task = std::move(task)] {
    const bool is_wanted =
        self->wanted_ == attempt && self->attempt_ && self->attempt_->order.attempt == attempt;
    if (is_wanted) task(*self->attempt_);
  });
}

void CheckpointWriter::Prepare(uint64_t attempt,
                               std::vector<uint64_t> sizes,
                               std::function<void()> then) {
  Post(attempt, [this, sizes = std::move(sizes), then = std::move(then)](Attempt&) {
    spares_.Prepare(sizes).IgnoreError();
    then();
  });
}

void CheckpointWriter::Write(uint64_t attempt, size_t lane, ChunkCapture capture) {
  const auto held = std::make_shared<ChunkCapture>(std::move(capture));
  Post(attempt, [this, lane, held](Attempt& current) {
    const absl::Status written = Append(current, lane, *held);
    *held = {};  // an executor may keep its tasks longer than they run
    if (!written.ok()) Fail(written);
  });
}

void CheckpointWriter::FinishLane(uint64_t attempt, size_t lane, std::function<void()> then) {
  Post(attempt, [this, lane, then = std::move(then)](Attempt& current) {
    const absl::Status finished = Finish(current, lane);
    if (!finished.ok()) return Fail(finished);
    then();
    const bool was_reported = current.finished_lanes.size() == lane_count_;
    current.finished_lanes.insert(lane);
    if (current.finished_lanes.size() < lane_count_) return;
    if (was_reported && current.files.empty()) return;
    report_({.attempt = current.order.attempt,
             .status = absl::OkStatus(),
             .highest_version = {},
             .files = std::exchange(current.files, {})});
  });
}

absl::Status CheckpointWriter::Append(Attempt& attempt, size_t lane, const ChunkCapture& capture) {
  std::unique_ptr<ChunkFileWriter>& file = attempt.open[lane];
  if (file == nullptr) {
    // A lane that captures more after finishing its file begins another one, under the number of a
    // lane that does not exist.
    const size_t number = lane + lane_count_ * attempt.parts[lane]++;
    PUSHPULL_ASSIGN_OR_RETURN(file,
                              ChunkFileWriter::Create(files_,
                                                      attempt.order.folder,
                                                      {.step = attempt.order.step,
                                                       .attempt = attempt.order.attempt,
                                                       .server = server_,
                                                       .lane = static_cast<uint32_t>(number)}));
  }
  return file->Append(capture.record, capture.value->bytes(), capture.state->bytes());
}

absl::Status CheckpointWriter::Finish(Attempt& attempt, size_t lane) {
  const auto file = attempt.open.find(lane);
  if (file == attempt.open.end() || file->second == nullptr) return absl::OkStatus();
  PUSHPULL_ASSIGN_OR_RETURN(ChunkFileSummary summary, file->second->Finish());
  attempt.open.erase(file);
  attempt.files.push_back(std::move(summary));
  return absl::OkStatus();
}

// Unfinished files are removed with the attempt, finished ones by the coordinator.
void CheckpointWriter::Fail(const absl::Status& why) {
  const uint64_t attempt = attempt_->order.attempt;
  uint64_t expected = attempt;
  wanted_.compare_exchange_strong(expected, 0);
  attempt_.reset();
  spares_.Clear();
  report_({.attempt = attempt, .status = why, .highest_version = {}, .files = {}});
}

}  // namespace pushpull
