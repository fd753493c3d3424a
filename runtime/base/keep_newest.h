// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace pushpull {

// Drops the first values of a list to which new ones are appended, if it has more than `max`.
template <typename T>
void KeepNewest(std::vector<T>& values, size_t max) {
  if (values.size() > max) values.erase(values.begin(), values.end() - static_cast<ptrdiff_t>(max));
}

}  // namespace pushpull
