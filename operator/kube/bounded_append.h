// SPDX-License-Identifier: Apache-2.0
//
// Appends to a text whose size has a bound, without taking more memory than the bound. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull_operator {

// Capacity grows by half and never beyond `bytes_max`, where std::string alone would take up to
// twice that. `text` and `piece` together must have at most `bytes_max` bytes.
inline void BoundedAppend(absl::string_view piece, size_t bytes_max, std::string& text) {
  const size_t bytes = text.size() + piece.size();
  if (bytes > text.capacity()) {
    // A new string: reserve() of one that has memory at least doubles it.
    std::string grown;
    grown.reserve(std::max(bytes, std::min(bytes_max, text.capacity() / 2 * 3)));
    grown.append(text);
    text.swap(grown);
  }
  text.append(piece.data(), piece.size());
}

}  // namespace pushpull_operator
