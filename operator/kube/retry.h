// SPDX-License-Identifier: Apache-2.0
//
// Whether a request to the API server is sent once more, and when. Pure.
#pragma once

#include <chrono>
#include <optional>

#include "runtime/base/deadline.h"

namespace pushpull_operator {

// Whether a request whose fate is unknown may be sent again.
enum class Repeat {
  kSafe,    // reads, and writes that come to the same when they are done twice
  kUnsafe,  // create: the second would find the first
};

// How one try went.
struct Attempt {
  bool was_sent = false;  // whether a byte of the request may have reached the server
  int code = 0;           // of HTTP; 0: no answer, or not all of it
  std::optional<std::chrono::seconds> retry_after;
};

// As client-go: then the caller's own backing off takes over.
inline constexpr int kAttemptsMax = 10;

// How long to wait before the next try; nothing: this was the last. `attempts` counts those that
// are over. `jitter` in [0, 1) spreads the tries of many clients after an outage.
//
// 429, and 5xx with Retry-After, say that nothing was done: any request is repeated, after the time
// that the server asks for. Without an answer only what is safe, or was never sent.
std::optional<pushpull::Duration> DelayBeforeRetry(const Attempt& attempt,
                                                   Repeat repeat,
                                                   int attempts,
                                                   double jitter);

}  // namespace pushpull_operator
