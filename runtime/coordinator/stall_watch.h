// SPDX-License-Identifier: Apache-2.0
//
// One line of what all servers say about a step that does not end: which workers are missing, in
// which step, and a tensor that waits for them. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"

namespace pushpull {

// Thread-compatible.
class StallWatch {
 public:
  // What a server said last, or that it said that nothing waits.
  void OnServer(ServerId server, const std::optional<Stall>& stall);
  void Remove(ServerId server) { stalls_.erase(server); }

  // The lowest step that waits, and everybody who is missing in it; none while steps go on.
  std::optional<Stall> Current() const;

  struct News {
    bool has_begun = false;  // else it is over
    std::string text;
  };
  // What is to be said now: once for each step and set of missing workers, and once at the end.
  std::optional<News> Take();

 private:
  std::map<ServerId, Stall> stalls_;
  std::optional<Stall> said_;
};

}  // namespace pushpull
