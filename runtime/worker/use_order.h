// SPDX-License-Identifier: Apache-2.0
//
// How a list of tensors in the order of the forward pass becomes priorities of frames.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pushpull {

// After all gradients: a worker that dies before these are sent has not done its samples.
inline constexpr uint8_t kSamplesPriority = 255;

// Of the tensor at `place` of a list of `count`; smaller goes first. More than 255 tensors share
// priorities with their neighbours, evenly: a list cut off at 255 would leave its end, which the
// backward pass pushes first, in the order of the backward pass.
constexpr uint8_t PriorityOfPlace(size_t place, size_t count) {
  const size_t priority = count <= kSamplesPriority ? place : place * kSamplesPriority / count;
  return static_cast<uint8_t>(priority);
}

}  // namespace pushpull
