// SPDX-License-Identifier: Apache-2.0
//
// Times in API objects: UTC, to the second. Never compared with the machine's own clock: "now" is
// the API server's. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull_operator {

using WallTime = std::chrono::sys_seconds;

// "2026-01-31T12:00:00Z", also with a fraction, which is truncated, or another offset. Nothing if
// the text is not such a time.
std::optional<WallTime> ParseWallTime(absl::string_view text);

// "2026-01-31T12:00:00Z".
std::string ToText(WallTime time);

}  // namespace pushpull_operator
