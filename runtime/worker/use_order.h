// SPDX-License-Identifier: Apache-2.0
//
// Maps a list of tensors, in forward-pass order, to frame priorities.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pushpull {

// Samples go after all gradients: a worker that dies before that has not done its samples.
inline constexpr uint8_t kSamplesPriority = 255;

// The priority of the tensor at `place` in a list of `count`; smaller goes first. With more than
// 255 tensors, neighbors share priorities evenly: if the list were cut off at 255, its end, which
// the backward pass pushes first, would stay in the order of the backward pass.
constexpr uint8_t PriorityOfPlace(size_t place, size_t count) {
  const size_t priority = count <= kSamplesPriority ? place : place * kSamplesPriority / count;
  return static_cast<uint8_t>(priority);
}

}  // namespace pushpull
