// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

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

std::string FormatProgress(const JobStatus& status, const JobStatus& before) {
  const auto is_alive = [](const auto& member) { return member.is_alive; };
  const std::string members = absl::StrCat(" | ",
                                           absl::c_count_if(status.servers, is_alive),
                                           " servers | ",
                                           absl::c_count_if(status.workers, is_alive),
                                           " workers");
  if (status.phase == JobPhase::kStarting) return absl::StrCat("starting", members);
  std::string line = absl::StrCat("step ", status.step.value());
  if (!status.losses.empty())
    absl::StrAppendFormat(&line, " | loss %.4f", status.losses.back().loss);
  const double seconds = status.seconds - before.seconds;
  if (seconds > 0 && status.samples >= before.samples) {
    absl::StrAppendFormat(
        &line, " | %.0f samples/s", static_cast<double>(status.samples - before.samples) / seconds);
  }
  if (status.sync_seconds.count() > 0)
    absl::StrAppendFormat(&line, " | sync %.1f ms", status.sync_seconds.At(0.5) * 1e3);
  return line + members;
}

Console::Console(bool shows_progress)
    : shows_progress_(shows_progress), is_terminal_(shows_progress && isatty(STDERR_FILENO) == 1) {}

void Console::Print(const std::string& line) {
  ClearProgressLine();
  const std::string text = line + "\n";  // written at once, and whole: a program may print NUL
  std::fwrite(text.data(), 1, text.size(), stderr);
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
