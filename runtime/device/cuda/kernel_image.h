// SPDX-License-Identifier: Apache-2.0
//
// The compiled kernels.cu: machine code for several GPUs in one block of memory, inside the
// program.
#pragma once

#include <cstddef>
#include <span>

namespace pushpull {

// Empty in a build without CUDA (PUSHPULL_ENABLE_CUDA). Lives as long as the program.
std::span<const std::byte> KernelImage();

}  // namespace pushpull
