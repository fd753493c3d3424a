// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "runtime/base/printable.h"

namespace pushpull {
namespace {

struct Level {
  absl::string_view name;
  LogLevel level;
  spdlog::level::level_enum in_spdlog;
};

// In the order of LogLevel.
constexpr Level kLevels[] = {{"debug", LogLevel::kDebug, spdlog::level::debug},
                             {"info", LogLevel::kInfo, spdlog::level::info},
                             {"warning", LogLevel::kWarning, spdlog::level::warn},
                             {"error", LogLevel::kError, spdlog::level::err}};

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  return kLevels[static_cast<size_t>(level)].in_spdlog;
}

// Longer than a worker's failure with its details.
constexpr size_t kLineBytesMax = 16 * 1024;

bool NeedsQuotes(absl::string_view value) {
  return value.empty() || value.find_first_of(" \"=\n") != absl::string_view::npos;
}

void AppendField(const LogField& field, std::string& line) {
  absl::StrAppend(&line, " ", field.key, "=");
  if (!NeedsQuotes(field.value)) {
    line += field.value;
    return;
  }
  line += '"';
  for (const char c : field.value) {
    if (c == '"' || c == '\\') line += '\\';
    line += c == '\n' ? ' ' : c;
  }
  line += '"';
}

}  // namespace

struct Log::Sink {
  mutable spdlog::logger logger;
};

absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view text) {
  for (const Level& level : kLevels) {
    if (text == level.name) return level.level;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("log level: must be debug, info, warning or error, is \"", text, "\""));
}

Log::Log(absl::string_view node, LogLevel level) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  sink_ = std::make_shared<const Sink>(Sink{spdlog::logger(std::string(node), std::move(sink))});
  sink_->logger.set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %n %v");
  sink_->logger.set_level(ToSpdlog(level));
}

void Log::Write(LogLevel level, absl::string_view message, Fields fields) const {
  if (!sink_->logger.should_log(ToSpdlog(level))) return;
  std::string line(message);
  for (const LogField& field : fields) AppendField(field, line);
  // The line contains names and texts of peers.
  sink_->logger.log(ToSpdlog(level), "{}", Printable(line, kLineBytesMax));
}

}  // namespace pushpull
