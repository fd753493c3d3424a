// SPDX-License-Identifier: Apache-2.0
//
// Combines the servers' reports on a step that does not complete into one line: the step, the
// missing workers, and a tensor that waits for them. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-compatible.
class StallWatch {
 public:
  // A server's last report; none: nothing waits on it.
  void OnServer(ServerId server, const std::optional<Stall>& stall);
  void Remove(ServerId server) { stalls_.erase(server); }

  // The lowest step that waits, with all workers missing in it; none while steps proceed.
  std::optional<Stall> Current() const;

  struct News {
    bool has_begun = false;  // else it is over
    std::string text;
    std::vector<WorkerId> missing = {};  // that the step waits for
  };
  // What to log now: once for each step and set of missing workers, and once when the stall is
  // over.
  std::optional<News> Take();

 private:
  std::map<ServerId, Stall> stalls_;
  std::optional<Stall> said_;
};

}  // namespace pushpull
