// SPDX-License-Identifier: Apache-2.0
//
// A job's status for a terminal: the contents of the status page in a few lines. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/status/status_history.h"

namespace pushpull {

struct TerminalSize {
  size_t columns = 80;
  size_t rows = 24;
};

// At most `size.rows` lines of at most `size.columns` printable ASCII characters: figures, where
// the time of a step goes, who is late, members with a problem first, the newest events. Only
// members and events may be cut to fit. `history` must have a status.
std::vector<std::string> TerminalLines(const StatusHistory& history, TerminalSize size);

// The same in one line, for a log.
std::string StatusLine(const StatusHistory& history);

}  // namespace pushpull
