// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/trace_collector.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

// Per answer: far below the 4 MiB that a client accepts.
constexpr size_t kEventsOfAnswer = TraceReport::kPushesMax;

size_t EventsOf(const TraceReport& report) {
  return report.pushes.size() + report.spans.size();
}

}  // namespace

absl::StatusOr<TraceSteps> TraceCollector::Start(const TraceRequest& request,
                                                 const Workers& workers,
                                                 SteadyTime now) {
  const auto check = [](const char* what, uint32_t value, uint32_t max) {
    if (value >= 1 && value <= max) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a trace of ", value, " ", what, ": expected 1 to ", max));
  };
  absl::Status status = check("steps", request.steps, TraceRequest::kStepsMax);
  status.Update(check("seconds", request.seconds, TraceRequest::kSecondsMax));
  if (!status.ok()) return status;
  if (workers.empty())
    return absl::FailedPreconditionError("no worker is there that could be traced");
  Clear();
  // Unique to this coordinator: the next one knows nothing of the trace.
  number_ = (term_.value() << 32) | ++last_;
  const Duration within = std::chrono::seconds(request.seconds);
  ends_at_ = now + within + kKept;
  const auto share = std::max<uint32_t>(kEventsMax / static_cast<uint32_t>(workers.size()), 1);
  for (const auto& [worker, incarnation] : workers) missing_[worker] = {incarnation, share};
  const uint32_t spare = workers.size() > 1 ? kSpareSteps : 0;
  return TraceSteps{
      .number = number_, .steps = request.steps + spare, .pushes_max = share, .within = within};
}

void TraceCollector::OnReport(WorkerId worker, TraceReport report) {
  const auto share = missing_.find(worker);
  if (number_ == 0 || report.number != number_ || share == missing_.end()) return;
  // A worker that reports more than it was told to harms only its own trace.
  if (EventsOf(report) > share->second.room) {
    report.left_out += EventsOf(report);
    report.pushes.clear();
    report.spans.clear();
    report.is_last = true;
  }
  share->second.room -= static_cast<uint32_t>(EventsOf(report));
  report.worker = worker;
  // An empty part carries no information, unless it is the last.
  const bool is_last = report.is_last;
  if (is_last || EventsOf(report) > 0) parts_.push_back(std::move(report));
  if (is_last) missing_.erase(share);
}

void TraceCollector::KeepOnly(const Workers& workers) {
  std::erase_if(missing_, [&](const auto& entry) {
    const auto worker = workers.find(entry.first);
    return worker == workers.end() || worker->second != entry.second.incarnation;
  });
}

void TraceCollector::OnTick(SteadyTime now) {
  if (number_ != 0 && now >= ends_at_) Clear();
}

absl::StatusOr<TraceParts> TraceCollector::Take(uint64_t number, uint64_t from) {
  if (number_ == 0 || number != number_) {
    return absl::NotFoundError(
        "the trace is not there any more: another one was started, or the coordinator is new. "
        "Start it again");
  }
  while (!parts_.empty() && first_part_ < from) {
    parts_.pop_front();
    ++first_part_;
  }
  TraceParts taken;
  size_t events = 0;
  size_t count = 0;
  while (count < parts_.size() &&
         (count == 0 || events + EventsOf(parts_[count]) <= kEventsOfAnswer)) {
    events += EventsOf(parts_[count]);
    taken.reports.push_back(parts_[count++]);
  }
  taken.next = first_part_ + count;
  for (const auto& [worker, share] : missing_) taken.missing.push_back(worker);
  taken.is_over = missing_.empty() && count == parts_.size();
  return taken;
}

void TraceCollector::Clear() {
  number_ = 0;
  missing_.clear();
  parts_.clear();
  first_part_ = 0;
}

}  // namespace pushpull
