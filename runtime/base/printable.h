// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

inline constexpr size_t kPrintableBytesMax = 4096;

// A peer's text in a form that is safe for a log, a status, an event or a terminal: one line of at
// most `max_bytes` (at least 4), with nothing that a terminal or a reader takes for more than text.
// Control characters, line separators and direction marks become \n, \x1b or \u202e, invalid UTF-8
// becomes '?', and text that is too long ends with "...". Idempotent.
std::string Printable(absl::string_view text, size_t max_bytes = kPrintableBytesMax);

}  // namespace pushpull
