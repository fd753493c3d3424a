// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace pushpull {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

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
  if (text == "debug") return LogLevel::kDebug;
  if (text == "info") return LogLevel::kInfo;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  return absl::InvalidArgumentError(
      absl::StrCat("log level: must be debug, info, warning or error, is \"", text, "\""));
}

Log::Log(absl::string_view node, LogLevel level) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  sink_ = std::make_shared<const Sink>(Sink{spdlog::logger(std::string(node), std::move(sink))});
  sink_->logger.set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %n %v");
  sink_->logger.set_level(ToSpdlog(level));
}

void Log::Debug(absl::string_view message, std::initializer_list<LogField> fields) const {
  Write(LogLevel::kDebug, message, fields);
}
void Log::Info(absl::string_view message, std::initializer_list<LogField> fields) const {
  Write(LogLevel::kInfo, message, fields);
}
void Log::Warning(absl::string_view message, std::initializer_list<LogField> fields) const {
  Write(LogLevel::kWarning, message, fields);
}
void Log::Error(absl::string_view message, std::initializer_list<LogField> fields) const {
  Write(LogLevel::kError, message, fields);
}

void Log::Write(LogLevel level,
                absl::string_view message,
                std::initializer_list<LogField> fields) const {
  if (!sink_->logger.should_log(ToSpdlog(level))) return;
  std::string line(message);
  for (const LogField& field : fields) AppendField(field, line);
  sink_->logger.log(ToSpdlog(level), "{}", line);
}

}  // namespace pushpull
