// SPDX-License-Identifier: Apache-2.0
//
// The line in which a program says why it ended: the last line of its last Python traceback,
// otherwise the last line that it printed. Lines of our own log have times in them and say what the
// library did, so they do not count.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

// Thread-compatible.
class ErrorLine {
 public:
  static constexpr size_t kBytesMax = 300;

  // The next line of the program's output.
  void Add(absl::string_view line);
  // Printable, at most kBytesMax; empty: the program has said nothing.
  const std::string& text() const { return from_traceback_.empty() ? last_ : from_traceback_; }

 private:
  bool is_in_traceback_ = false;
  std::string from_traceback_;
  std::string last_;
};

// Of a whole output, or its end.
std::string ErrorLineOf(absl::string_view output);

}  // namespace pushpull
