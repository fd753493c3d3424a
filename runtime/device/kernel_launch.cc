// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/kernel_launch.h"

#include <algorithm>

namespace pushpull {
namespace {

constexpr uint64_t kBlocksMax = 0x7FFFFFFF;

}  // namespace

KernelExtent ExtentOf(size_t num_elements, std::initializer_list<KernelArray> arrays) {
  const bool is_aligned = std::all_of(arrays.begin(), arrays.end(), [](const KernelArray& array) {
    return reinterpret_cast<uintptr_t>(array.data) % (kVectorWidth * array.element_bytes) == 0;
  });
  return {.num_elements = num_elements,
          .num_vectors = is_aligned ? num_elements / kVectorWidth : 0};
}

unsigned BlocksFor(const KernelExtent& extent, unsigned unroll) {
  const uint64_t num_singles = extent.num_elements - extent.num_vectors * kVectorWidth;
  const uint64_t num_parts = std::max(extent.num_vectors, num_singles);
  const uint64_t parts_per_block = uint64_t{kThreadsPerBlock} * unroll;
  const uint64_t num_blocks = (num_parts + parts_per_block - 1) / parts_per_block;
  return static_cast<unsigned>(std::clamp<uint64_t>(num_blocks, 1, kBlocksMax));
}

}  // namespace pushpull
