// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/kernel_image.h"

// PUSHPULL_KERNEL_IMAGE is the path of nvcc's output. The driver requires alignment to 8 bytes.
asm(".section .rodata\n"
    ".balign 64\n"
    "pushpull_kernel_image_begin:\n"
    ".incbin \"" PUSHPULL_KERNEL_IMAGE
    "\"\n"
    "pushpull_kernel_image_end:\n"
    ".byte 0\n"
    ".previous\n");

extern "C" {
// Hidden: these are this program's or library's own, whatever else has symbols of the same name.
[[gnu::visibility("hidden")]] extern const std::byte pushpull_kernel_image_begin[];
[[gnu::visibility("hidden")]] extern const std::byte pushpull_kernel_image_end[];
}

namespace pushpull {

std::span<const std::byte> KernelImage() {
  return {pushpull_kernel_image_begin, pushpull_kernel_image_end};
}

}  // namespace pushpull
