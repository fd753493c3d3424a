// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

inline constexpr size_t kPrintableBytesMax = 4096;

// A text of a peer as it may be shown in a log, a status, an event or a terminal: one line without
// anything that a terminal or a reader takes for more than text, of at most `max_bytes` (4 at
// least). Control characters, line separators and marks of direction become \n, \x1b or \u202e,
// invalid UTF-8 becomes '?', and what is too long ends with "...". Applied twice it changes
// nothing.
std::string Printable(absl::string_view text, size_t max_bytes = kPrintableBytesMax);

}  // namespace pushpull
