// SPDX-License-Identifier: Apache-2.0
#include "runtime/trace/shared_steps.h"

#include <algorithm>
#include <limits>
#include <map>

namespace pushpull {
namespace {

struct Range {
  Step first{std::numeric_limits<uint64_t>::max()};
  Step last;
};

using Ranges = std::map<WorkerId, Range>;

Ranges RecordedSteps(const std::vector<TraceReport>& reports) {
  Ranges ranges;
  for (const TraceReport& report : reports) {
    for (const TracedPush& push : report.pushes) {
      Range& range = ranges[report.worker];
      range.first = std::min(range.first, push.step);
      range.last = std::max(range.last, push.step);
    }
  }
  return ranges;
}

// The first `steps` of the range.
Range Shorten(const Range& range, uint32_t steps) {
  return {range.first, std::min(range.last, Step{range.first.value() + steps - 1})};
}

Ranges ShownSteps(Ranges ranges, uint32_t steps) {
  Range shared{.first = Step{0}, .last = Step{std::numeric_limits<uint64_t>::max()}};
  for (const auto& [worker, range] : ranges) {
    shared.first = std::max(shared.first, range.first);
    shared.last = std::min(shared.last, range.last);
  }
  const bool is_shared = shared.last.value() + 1 >= shared.first.value() + (steps + 1) / 2;
  for (auto& [worker, range] : ranges) range = Shorten(is_shared ? shared : range, steps);
  return ranges;
}

// The time of a worker's shown steps, by its clock, beginning with the end of the previous step.
struct Interval {
  int64_t begin = std::numeric_limits<int64_t>::min();
  int64_t end = std::numeric_limits<int64_t>::min();
};

std::map<WorkerId, Interval> TimesOf(const Ranges& shown, const std::vector<TraceReport>& reports) {
  std::map<WorkerId, Interval> times;
  for (const TraceReport& report : reports) {
    for (const TracedPush& push : report.pushes) {
      const Range& range = shown.at(report.worker);
      Interval& interval = times[report.worker];
      if (push.step < range.first) interval.begin = std::max(interval.begin, push.applied);
      if (push.step <= range.last) interval.end = std::max(interval.end, push.applied);
    }
  }
  return times;
}

}  // namespace

void KeepSharedSteps(uint32_t steps, std::vector<TraceReport>& reports) {
  const Ranges shown = ShownSteps(RecordedSteps(reports), steps);
  const std::map<WorkerId, Interval> times = TimesOf(shown, reports);
  for (TraceReport& report : reports) {
    const auto range = shown.find(report.worker);
    if (range == shown.end()) continue;
    const Interval& interval = times.at(report.worker);
    std::erase_if(report.pushes, [&range = range->second](const TracedPush& push) {
      return push.step < range.first || push.step > range.last;
    });
    std::erase_if(report.spans, [&interval](const TracedSpan& span) {
      return span.end <= interval.begin || span.begin >= interval.end;
    });
  }
}

}  // namespace pushpull
