// SPDX-License-Identifier: Apache-2.0
//
// How many threads a kernel gets, and which elements it may access as vectors. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "runtime/device/cuda/kernel_args.h"

namespace pushpull {

// An array of a call: its address, and the size of an element.
struct KernelArray {
  const void* data = nullptr;
  size_t element_bytes = sizeof(float);
};

// With vectors if all arrays are aligned for them, otherwise with none.
KernelExtent ExtentOf(size_t num_elements, std::initializer_list<KernelArray> arrays);

// The number of blocks of kThreadsPerBlock threads: enough that each thread has at most `unroll`
// vectors and at most `unroll` elements of the rest. At least 1, and at most what every GPU
// supports; kernels stride by the total number of threads.
unsigned BlocksFor(const KernelExtent& extent, unsigned unroll);

}  // namespace pushpull
