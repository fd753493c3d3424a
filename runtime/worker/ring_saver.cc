// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/ring_saver.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/checkpoint/file_system.h"

namespace pushpull {

RingSaver::RingSaver(Executor& executor, std::function<void(Captured)> report)
    : report_(std::move(report)), self_(std::make_shared<RingSaver*>(this)), disk_(executor) {}

void RingSaver::End(uint64_t attempt) {
  if (order_ && order_->attempt == attempt) order_.reset();
  if (writing_ == attempt) writing_ = 0;
}

std::optional<Capture> RingSaver::AdvanceTo(Step next) {
  if (!order_ || next < order_->step) return std::nullopt;
  if (next == order_->step) return order_;
  const Capture late = *std::exchange(order_, std::nullopt);
  report_({.attempt = late.attempt,
           .status = absl::AbortedError(absl::StrCat("is at step ", next.value())),
           .highest_version = next,
           .files = {}});
  return std::nullopt;
}

void RingSaver::Write(uint64_t attempt, absl::StatusOr<StatePart> part) {
  if (!order_ || order_->attempt != attempt) return;
  const Capture order = *std::exchange(order_, std::nullopt);
  if (!part.ok()) {
    return report_(
        {.attempt = order.attempt, .status = part.status(), .highest_version = {}, .files = {}});
  }
  writing_ = order.attempt;
  const auto held = std::make_shared<StatePart>(*std::move(part));
  disk_.Start([order, held, self = std::weak_ptr(self_)] {
    PosixFileSystem files;
    absl::StatusOr<std::vector<ChunkFileSummary>> written = held->Write(files, order);
    Captured done = {
        .attempt = order.attempt, .status = written.status(), .highest_version = {}, .files = {}};
    if (written.ok()) done.files = *std::move(written);
    return [self, done = std::move(done)] {
      const std::shared_ptr<RingSaver*> saver = self.lock();
      if (saver == nullptr || (*saver)->writing_ != done.attempt) return;
      (*saver)->writing_ = 0;
      (*saver)->report_(done);
    };
  });
}

}  // namespace pushpull
