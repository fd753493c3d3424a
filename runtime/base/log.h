// SPDX-License-Identifier: Apache-2.0
//
// Structured log to standard error: a constant message and key/value fields. One line per change of
// state; lines per request only at debug level.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "pushpull/log_level.h"

namespace pushpull {

// "debug", "info", "warning" or "error"; anything else is kInvalidArgument.
absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view text);

struct LogField {
  // A text or a number.
  LogField(absl::string_view name, const absl::AlphaNum& shown) : key(name), value(shown.Piece()) {}

  std::string key;
  std::string value;
};

// A named logger, cheap to copy. Thread-safe.
class Log {
 public:
  // `node` is printed on every line, e.g. "server-1".
  explicit Log(absl::string_view node, LogLevel level = LogLevel::kInfo);

  using Fields = std::initializer_list<LogField>;
  void Debug(absl::string_view message, Fields fields = {}) const {
    Write(LogLevel::kDebug, message, fields);
  }
  void Info(absl::string_view message, Fields fields = {}) const {
    Write(LogLevel::kInfo, message, fields);
  }
  void Warning(absl::string_view message, Fields fields = {}) const {
    Write(LogLevel::kWarning, message, fields);
  }
  void Error(absl::string_view message, Fields fields = {}) const {
    Write(LogLevel::kError, message, fields);
  }

 private:
  void Write(LogLevel level, absl::string_view message, Fields fields) const;

  struct Sink;
  std::shared_ptr<const Sink> sink_;
};

}  // namespace pushpull
