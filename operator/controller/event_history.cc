// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/event_history.h"

#include <algorithm>

namespace pushpull_operator {

std::optional<EventWrite> EventHistory::Record(const Event& event,
                                               const std::string& name,
                                               WallTime now) {
  while (!times_.empty() && times_.front() + std::chrono::minutes(1) <= now) times_.pop_front();
  std::erase_if(recorded_,
                [now](const Recorded& recorded) { return recorded.last + kSameFor <= now; });
  if (times_.size() >= kWritesAMinute) return std::nullopt;
  auto same = std::find_if(recorded_.begin(), recorded_.end(), [&](const Recorded& recorded) {
    return recorded.event == event;
  });
  if (same == recorded_.end())
    same = recorded_.insert(recorded_.end(), {.event = event, .name = name});
  ++same->count;
  same->last = now;
  times_.push_back(now);
  return EventWrite{.name = same->name, .count = same->count};
}

}  // namespace pushpull_operator
