// SPDX-License-Identifier: Apache-2.0
//
// What has been told of one job lately, so that a job in trouble does not fill the API server: the
// same event again counts up the one that is there, and there are so many writes a minute. Pure.
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
  int count = 1;  // above 1: of the event of this name that is there already
  friend bool operator==(const EventWrite&, const EventWrite&) = default;
};

class EventHistory {
 public:
  // Of operators.md, statement 47.
  static constexpr int kWritesAMinute = 10;
  // As client-go's correlator: what is this far apart are two events.
  static constexpr std::chrono::minutes kSameFor{10};

  // `name` is for a new one. Nothing: more has been told within the last minute than is allowed.
  std::optional<EventWrite> Record(const Event& event, const std::string& name, WallTime now);

 private:
  struct Told {
    Event event;
    std::string name;
    int count = 0;
    WallTime last{};
  };
  std::deque<Told> told_;       // of the last ten minutes
  std::deque<WallTime> times_;  // of the writes of the last minute
};

}  // namespace pushpull_operator
