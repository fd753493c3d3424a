// SPDX-License-Identifier: Apache-2.0
//
// How long a key that has failed waits: 5 ms, 10 ms, 20 ms, ... up to 1000 s, until it is
// forgotten. Each key on its own, so one broken object costs the others nothing. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"

#include "runtime/base/deadline.h"

namespace pushpull_operator {

struct BackoffTimes {
  pushpull::Duration first = std::chrono::milliseconds(5);
  pushpull::Duration longest = std::chrono::seconds(1000);
};

// Thread-compatible.
class KeyBackoff {
 public:
  explicit KeyBackoff(BackoffTimes times = {}) : times_(times) {}

  // The key has failed once more: how long to wait.
  pushpull::Duration Failed(const std::string& key);
  void Forget(const std::string& key) { failures_.erase(key); }
  int failures(const std::string& key) const;
  // Keys with failures; what is not forgotten stays for ever.
  size_t size() const { return failures_.size(); }

 private:
  const BackoffTimes times_;
  absl::flat_hash_map<std::string, int> failures_;
};

}  // namespace pushpull_operator
