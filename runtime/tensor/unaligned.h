// SPDX-License-Identifier: Apache-2.0
//
// Numbers at any address, for loops that the compiler turns into vectors.
#pragma once

#include <cstddef>
#include <cstring>

namespace pushpull {

template <typename Number>
[[gnu::always_inline]] inline Number LoadAt(const std::byte* bytes, size_t index) {
  Number number;
  std::memcpy(&number, bytes + index * sizeof(Number), sizeof(Number));
  return number;
}

template <typename Number>
[[gnu::always_inline]] inline void StoreAt(std::byte* bytes, size_t index, Number number) {
  std::memcpy(bytes + index * sizeof(Number), &number, sizeof(Number));
}

}  // namespace pushpull
