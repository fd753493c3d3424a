// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/ring_saver.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace pushpull {

RingSaver::RingSaver(Executor& executor, std::function<void(Captured)> report)
    : executor_(executor), report_(std::move(report)), self_(std::make_shared<RingSaver*>(this)) {}

RingSaver::~RingSaver() = default;

void RingSaver::End(uint64_t attempt) {
  if (order_ && order_->attempt == attempt) order_.reset();
  if (writing_ == attempt) writing_ = 0;
}

bool RingSaver::IsDue(Step next) {
  if (!order_ || next < order_->step) return false;
  if (next == order_->step) return true;
  const Capture late = *std::exchange(order_, std::nullopt);
  report_({.attempt = late.attempt,
           .status = absl::AbortedError(absl::StrCat("is at step ", next.value())),
           .highest_version = next,
           .files = {}});
  return false;
}

void RingSaver::Write(uint64_t attempt, absl::StatusOr<StatePart> part) {
  if (!order_ || order_->attempt != attempt) return;
  const Capture order = *std::exchange(order_, std::nullopt);
  if (!part.ok()) {
    return report_(
        {.attempt = order.attempt, .status = part.status(), .highest_version = {}, .files = {}});
  }
  if (disk_ == nullptr) disk_ = std::make_unique<EventLoop>("pp-checkpoint");
  writing_ = order.attempt;
  const auto held = std::make_shared<StatePart>(*std::move(part));
  disk_->Post([this, order, held, self = std::weak_ptr(self_)] {
    absl::StatusOr<std::vector<ChunkFileSummary>> files = held->Write(files_, order);
    *held = {};  // an executor may keep its tasks longer than they run
    Captured done = {
        .attempt = order.attempt, .status = files.status(), .highest_version = {}, .files = {}};
    if (files.ok()) done.files = *std::move(files);
    executor_.Post([self, done = std::move(done)] {
      const std::shared_ptr<RingSaver*> saver = self.lock();
      if (saver == nullptr || (*saver)->writing_ != done.attempt) return;
      (*saver)->writing_ = 0;
      (*saver)->report_(done);
    });
  });
}

}  // namespace pushpull
