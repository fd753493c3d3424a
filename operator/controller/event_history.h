// SPDX-License-Identifier: Apache-2.0
//
// The recent events of one job, so that a failing job does not flood the API server: an equal event
// increments the count of the first one, and writes a minute are limited. Pure.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "operator/api/event.h"
#include "operator/api/wall_time.h"

namespace pushpull_operator {

// What to write of an event.
struct EventWrite {
  std::string name;
  int count = 1;  // above 1: of the existing event of this name
  friend bool operator==(const EventWrite&, const EventWrite&) = default;
};

class EventHistory {
 public:
  // Per job: one that flaps cannot flood the API server with events.
  static constexpr int kWritesAMinute = 10;
  // As in client-go's correlator: events this far apart are two.
  static constexpr std::chrono::minutes kSameFor{10};

  // `name` is that of a new event. Nothing: the limit of this minute is reached.
  std::optional<EventWrite> Record(const Event& event, const std::string& name, WallTime now);

 private:
  struct Recorded {
    Event event;
    std::string name;
    int count = 0;
    WallTime last{};
  };
  std::deque<Recorded> recorded_;  // of the last ten minutes
  std::deque<WallTime> times_;     // of the writes of the last minute
};

}  // namespace pushpull_operator
