// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/printable.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

#include "runtime/base/utf8.h"

namespace pushpull {
namespace {

// The code point of a valid UTF-8 character of up to three bytes; longer ones are no control
// characters.
uint32_t CodePointOf(absl::string_view character) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(character[i]));
  };
  if (character.size() == 1) return byte(0);
  if (character.size() == 2) return (byte(0) & 0x1FU) << 6 | (byte(1) & 0x3FU);
  if (character.size() == 3)
    return (byte(0) & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU);
  return 0x10000;
}

// Controls of ASCII and Latin-1, line and paragraph separators, marks and overrides of direction.
bool IsControl(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x061C || code == 0x200E ||
         code == 0x200F || (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

std::string Escaped(uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  if (code < 0x100) return absl::StrCat("\\x", absl::Hex(code, absl::kZeroPad2));
  return absl::StrCat("\\u", absl::Hex(code, absl::kZeroPad4));
}

}  // namespace

std::string Printable(absl::string_view text, size_t max_bytes) {
  constexpr absl::string_view kMore = "...";
  std::string shown;
  size_t cut = 0;  // where kMore still fits
  while (!text.empty()) {
    const size_t num_bytes = Utf8CharacterBytes(text);
    const absl::string_view character = text.substr(0, std::max<size_t>(num_bytes, 1));
    text.remove_prefix(character.size());
    const uint32_t code = num_bytes == 0 ? '?' : CodePointOf(character);
    if (num_bytes == 0) {
      shown += '?';
    } else if (IsControl(code)) {
      shown += Escaped(code);
    } else {
      absl::StrAppend(&shown, character);
    }
    if (shown.size() + kMore.size() <= max_bytes) cut = shown.size();
    if (shown.size() > max_bytes) return absl::StrCat(shown.substr(0, cut), kMore);
  }
  return shown;
}

}  // namespace pushpull
