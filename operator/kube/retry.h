// SPDX-License-Identifier: Apache-2.0
//
// Whether a request to the API server is retried, and when. Pure.
#pragma once

#include <optional>

#include "pushpull/deadline.h"

#include "operator/kube/http_exchange.h"

namespace pushpull_operator {

// Whether a request whose outcome is unknown may be sent again.
enum class Repeat {
  kSafe,    // reads and idempotent writes
  kUnsafe,  // create: a retry would find the object of the first attempt
};

// As in client-go; then the caller's own backoff takes over.
inline constexpr int kAttemptsMax = 10;

// The delay before the attempt after `last`; nothing if there is none. A code of 0: no response, or
// an incomplete one. `attempts` counts finished attempts. `jitter` in [0, 1) spreads the retries of
// many clients after an outage.
//
// 429, and 5xx with Retry-After, mean that the server did not execute the request: any request is
// retried after that time. Without a response, only safe or unsent requests are.
std::optional<pushpull::Duration> DelayBeforeRetry(const HttpResponse& last,
                                                   Repeat repeat,
                                                   int attempts,
                                                   double jitter);

}  // namespace pushpull_operator
