// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "runtime/local/progress.h"

namespace pushpull {
namespace {

constexpr Duration kPlainLinePeriod = std::chrono::seconds(5);

// `line` cut to the terminal's width: a line that wraps cannot be redrawn in place.
std::string FitTerminal(const std::string& line) {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return line;
  return line.substr(0, size.ws_col - 1u);
}

}  // namespace

Console::Console(bool shows_progress)
    : shows_progress_(shows_progress), is_terminal_(shows_progress && isatty(STDERR_FILENO) == 1) {}

void Console::Print(const std::string& line) {
  ClearProgressLine();
  std::fprintf(stderr, "%s\n", line.c_str());
}

void Console::PrintProgress(const std::string& line) {
  if (shows_progress_) Print(line);
}

void Console::ShowStatus(SteadyTime now, const JobStatus& status) {
  if (!shows_progress_ || (!is_terminal_ && now - shown_at_ < kPlainLinePeriod)) return;
  const std::string line = FormatProgress(status, last_shown_);
  shown_at_ = now;
  last_shown_ = status;
  if (!is_terminal_) return Print(line);
  std::fprintf(stderr, "\r\033[K%s", FitTerminal(line).c_str());
  std::fflush(stderr);
  has_progress_line_ = true;
}

void Console::ClearProgressLine() {
  if (!std::exchange(has_progress_line_, false)) return;
  std::fprintf(stderr, "\r\033[K");
}

}  // namespace pushpull
