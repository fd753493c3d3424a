// SPDX-License-Identifier: Apache-2.0
//
// Exponential backoff per key: 5 ms, 10 ms, 20 ms, ... up to 1000 s, until the key is forgotten. A
// failing object does not delay the others. Pure.
#pragma once

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_map.h"

#include "pushpull/deadline.h"

namespace pushpull_operator {

struct BackoffTimes {
  pushpull::Duration first = std::chrono::milliseconds(5);
  pushpull::Duration longest = std::chrono::seconds(1000);
};

// Thread-compatible.
class KeyBackoff {
 public:
  explicit KeyBackoff(BackoffTimes times = {}) : times_(times) {}

  // Counts a failure of the key and returns its delay.
  pushpull::Duration Failed(const std::string& key) {
    int& failures = failures_[key];
    pushpull::Duration delay = times_.first;
    // Stops before it overflows.
    for (int i = 0; i < failures && delay < times_.longest; ++i) delay *= 2;
    ++failures;
    return std::min(delay, times_.longest);
  }
  void Forget(const std::string& key) { failures_.erase(key); }
  int failures(const std::string& key) const {
    const auto found = failures_.find(key);
    return found == failures_.end() ? 0 : found->second;
  }

 private:
  const BackoffTimes times_;
  absl::flat_hash_map<std::string, int> failures_;
};

}  // namespace pushpull_operator
