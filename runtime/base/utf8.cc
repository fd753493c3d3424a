// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/utf8.h"

#include <algorithm>

namespace pushpull {
namespace {

// One line of the UTF-8 syntax: the ranges of the first and second byte; all others are 80-BF.
struct Utf8Form {
  size_t bytes;
  unsigned char first_min, first_max;
  unsigned char second_min, second_max;
};

// Source: RFC 3629, section 4 (no overlong forms, no surrogates, nothing above U+10FFFF).
constexpr Utf8Form kUtf8Forms[] = {{1, 0x00, 0x7F, 0x00, 0x00},
                                   {2, 0xC2, 0xDF, 0x80, 0xBF},
                                   {3, 0xE0, 0xE0, 0xA0, 0xBF},
                                   {3, 0xE1, 0xEC, 0x80, 0xBF},
                                   {3, 0xED, 0xED, 0x80, 0x9F},
                                   {3, 0xEE, 0xEF, 0x80, 0xBF},
                                   {4, 0xF0, 0xF0, 0x90, 0xBF},
                                   {4, 0xF1, 0xF3, 0x80, 0xBF},
                                   {4, 0xF4, 0xF4, 0x80, 0x8F}};

bool HasForm(absl::string_view text, const Utf8Form& form) {
  const auto is_within = [text](size_t i, unsigned char min, unsigned char max) {
    const auto byte = static_cast<unsigned char>(text[i]);
    return byte >= min && byte <= max;
  };
  if (text.size() < form.bytes || !is_within(0, form.first_min, form.first_max)) return false;
  if (form.bytes > 1 && !is_within(1, form.second_min, form.second_max)) return false;
  for (size_t i = 2; i < form.bytes; ++i) {
    if (!is_within(i, 0x80, 0xBF)) return false;
  }
  return true;
}

}  // namespace

size_t Utf8CharacterBytes(absl::string_view text) {
  for (const Utf8Form& form : kUtf8Forms) {
    if (HasForm(text, form)) return form.bytes;
  }
  return 0;
}

std::string ReplaceInvalidUtf8(absl::string_view text) {
  std::string result(text);
  for (size_t i = 0; i < result.size();) {
    const size_t bytes = Utf8CharacterBytes(text.substr(i));
    if (bytes == 0) result[i] = '?';
    i += std::max<size_t>(bytes, 1);
  }
  return result;
}

}  // namespace pushpull
