// SPDX-License-Identifier: Apache-2.0
//
// Buffers with these values.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "runtime/tensor/host_buffer.h"

namespace pushpull {

inline HostBuffer BufferOf(std::initializer_list<float> values) {
  HostBuffer buffer = *HostBuffer::Uninitialized(values.size() * sizeof(float));
  std::copy(values.begin(), values.end(), buffer.floats().begin());
  return buffer;
}

}  // namespace pushpull
