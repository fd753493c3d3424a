// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/tensorboard.h"

#include <cstdio>
#include <limits>
#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

ScalarsOfStep RatesOf(const HistoryPoint& point, const HistoryPoint* before) {
  ScalarsOfStep rates{
      .time = point.time,
      .step = point.step.value(),
      .scalars = {{"samples_per_second", static_cast<float>(point.samples_per_second)}}};
  if (point.syncs > 0)
    rates.scalars.push_back({"sync_seconds", static_cast<float>(point.sync_seconds)});
  if (before == nullptr || point.step < before->step) return rates;
  const auto steps = static_cast<double>(point.step.value() - before->step.value());
  rates.scalars.push_back(
      {"steps_per_second", static_cast<float>(steps / (point.time - before->time))});
  return rates;
}

// The step before which every worker has reported its losses: reports are at most a point old.
uint64_t SettledStep(const StatusHistory& history, bool is_last) {
  if (is_last) return std::numeric_limits<uint64_t>::max();
  const size_t num_points = history.points().size();
  return num_points < 2 ? 0 : history.points()[num_points - 2].step.value();
}

}  // namespace

std::vector<ScalarsOfStep> NewScalars(const StatusHistory& history,
                                      bool is_last,
                                      WrittenScalars& written) {
  std::vector<ScalarsOfStep> all;
  const HistoryPoint* before = nullptr;
  for (const HistoryPoint& point : history.points()) {
    if (point.time > written.points_until) {
      all.push_back(RatesOf(point, before));
      written.points_until = point.time;
    }
    before = &point;
  }
  if (history.status() == nullptr) return all;
  const uint64_t end = SettledStep(history, is_last);
  for (const LossPoint& loss : history.status()->losses) {
    const uint64_t step = loss.step.value();
    if (step < written.losses_until || step >= end) continue;
    all.push_back({.time = history.time(),
                   .step = step,
                   .scalars = {{"loss", static_cast<float>(loss.loss)}}});
    written.losses_until = step + 1;
  }
  return all;
}

absl::StatusOr<TensorBoardLog> TensorBoardLog::Open(const std::string& folder, double time) {
  PUSHPULL_ASSIGN_OR_RETURN(EventFile file, EventFile::Create(folder, time));
  return TensorBoardLog(std::move(file));
}

void TensorBoardLog::Add(const StatusHistory& history, bool is_last) {
  if (!file_) return;
  for (const ScalarsOfStep& it : NewScalars(history, is_last, written_)) {
    const absl::Status written = file_->Append(it.time, it.step, it.scalars);
    if (written.ok()) continue;
    std::fprintf(stderr, "pushpull: tensorboard: %s\n", std::string(written.message()).c_str());
    return file_.reset();
  }
}

}  // namespace pushpull
