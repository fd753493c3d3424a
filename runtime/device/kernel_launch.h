// SPDX-License-Identifier: Apache-2.0
//
// How many threads a kernel gets, and which of its elements it may touch as vectors. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "runtime/device/cuda/kernel_args.h"

namespace pushpull {

// An array of a call: where it begins, and bytes of an element.
struct KernelArray {
  const void* data = nullptr;
  size_t element_bytes = sizeof(float);
};

// Vectors where all arrays are aligned for them, none else.
KernelExtent ExtentOf(size_t num_elements, std::initializer_list<KernelArray> arrays);

// Blocks of kThreadsPerBlock threads: enough for every vector or, where there are more, element of
// the rest to be one of `unroll` of a thread. At least 1, at most what every GPU takes; kernels go
// on in steps of all threads.
unsigned BlocksFor(const KernelExtent& extent, unsigned unroll);

}  // namespace pushpull
