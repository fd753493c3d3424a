// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/event_history.h"

#include <algorithm>

namespace pushpull_operator {

std::optional<EventWrite> EventHistory::Record(const Event& event,
                                               const std::string& name,
                                               WallTime now) {
  while (!times_.empty() && times_.front() + std::chrono::minutes(1) <= now) times_.pop_front();
  std::erase_if(told_, [now](const Told& told) { return told.last + kSameFor <= now; });
  if (times_.size() >= kWritesAMinute) return std::nullopt;
  auto same = std::find_if(
      told_.begin(), told_.end(), [&](const Told& told) { return told.event == event; });
  if (same == told_.end()) same = told_.insert(told_.end(), {.event = event, .name = name});
  ++same->count;
  same->last = now;
  times_.push_back(now);
  return EventWrite{.name = same->name, .count = same->count};
}

}  // namespace pushpull_operator
