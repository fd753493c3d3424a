// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/retry.h"

#include <algorithm>

namespace pushpull_operator {
namespace {

using pushpull::Duration;

constexpr std::chrono::milliseconds kFirstDelay{50};
constexpr std::chrono::seconds kLongestDelay{5};
// For 429 without Retry-After.
constexpr std::chrono::seconds kBusyDelay{1};

Duration Spread(Duration delay, double jitter) {
  return delay + pushpull::FromSeconds(pushpull::ToSeconds(delay) * 0.5 * jitter);
}

}  // namespace

std::optional<Duration> DelayBeforeRetry(const HttpResponse& last,
                                         Repeat repeat,
                                         int attempts,
                                         double jitter) {
  if (attempts >= kAttemptsMax) return std::nullopt;
  if (last.code == 0) {
    // It would be too large again.
    if (absl::IsResourceExhausted(last.status)) return std::nullopt;
    if (last.was_sent && repeat == Repeat::kUnsafe) return std::nullopt;
    const Duration doubled = kFirstDelay * (1 << std::clamp(attempts - 1, 0, 7));
    return Spread(std::min<Duration>(doubled, kLongestDelay), jitter);
  }
  if (last.code != 429 && (last.code < 500 || !last.retry_after.has_value())) {
    return std::nullopt;
  }
  // Jitter never shortens Retry-After.
  return Spread(last.retry_after.value_or(kBusyDelay), jitter);
}

}  // namespace pushpull_operator
