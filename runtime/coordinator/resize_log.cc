// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/resize_log.h"

#include <utility>

namespace pushpull {

void ResizeLog::Begin(SteadyTime now, ResizeStatus resize, Totals totals) {
  if (resizes_.size() == JobStatus::kResizesMax) resizes_.erase(resizes_.begin());
  resizes_.push_back(resize);
  began_at_ = now;
  before_ = std::move(totals);
}

void ResizeLog::Update(SteadyTime now, bool is_settled, const Totals& totals) {
  if (!is_open()) return;
  ResizeStatus& resize = resizes_.back();
  resize.pause_seconds = totals.sync_seconds.Since(before_.sync_seconds).At(1);
  resize.moved_bytes = totals.bytes_copied - before_.bytes_copied;
  if (resize.is_settled) {
    resize.is_final = now - settled_at_ >= 2 * report_period_;
    return;
  }
  resize.seconds = ToSeconds(now - began_at_);
  resize.is_settled = is_settled;
  settled_at_ = now;
}

}  // namespace pushpull
