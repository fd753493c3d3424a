// SPDX-License-Identifier: Apache-2.0
#include "operator/queue/backoff.h"

#include <algorithm>

namespace pushpull_operator {

pushpull::Duration KeyBackoff::Failed(const std::string& key) {
  int& failures = failures_[key];
  pushpull::Duration delay = times_.first;
  // Stops before it overflows.
  for (int i = 0; i < failures && delay < times_.longest; ++i) delay *= 2;
  ++failures;
  return std::min(delay, times_.longest);
}

int KeyBackoff::failures(const std::string& key) const {
  const auto found = failures_.find(key);
  return found == failures_.end() ? 0 : found->second;
}

}  // namespace pushpull_operator
