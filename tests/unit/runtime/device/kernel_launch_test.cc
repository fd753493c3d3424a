// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/kernel_launch.h"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

const void* At(uintptr_t address) {
  return reinterpret_cast<const void*>(address);
}

TEST(KernelLaunchTest, AlignedArraysAreReadAsVectors) {
  const KernelExtent extent = ExtentOf(10, {{At(512)}, {At(1024)}});

  EXPECT_EQ(extent.num_elements, 10U);
  EXPECT_EQ(extent.num_vectors, 2U);
}

TEST(KernelLaunchTest, OneUnalignedArrayMakesAllReadsSingle) {
  EXPECT_EQ(ExtentOf(10, {{At(512)}, {At(1028)}}).num_vectors, 0U);
  EXPECT_EQ(ExtentOf(10, {{At(520)}}).num_vectors, 0U);
}

TEST(KernelLaunchTest, VectorsOfHalvesNeedHalfTheAlignment) {
  EXPECT_EQ(ExtentOf(8, {{At(512)}, {At(520), sizeof(uint16_t)}}).num_vectors, 2U);
  EXPECT_EQ(ExtentOf(8, {{At(512)}, {At(516), sizeof(uint16_t)}}).num_vectors, 0U);
}

TEST(KernelLaunchTest, ThereIsAThreadForEveryUnrolledPart) {
  EXPECT_EQ(BlocksFor({.num_elements = 0, .num_vectors = 0}, 4), 1U);
  EXPECT_EQ(BlocksFor({.num_elements = 4096, .num_vectors = 1024}, 4), 1U);
  EXPECT_EQ(BlocksFor({.num_elements = 4100, .num_vectors = 1025}, 4), 2U);
  EXPECT_EQ(BlocksFor({.num_elements = 4096, .num_vectors = 0}, 1), 16U);
}

TEST(KernelLaunchTest, BlocksStayBelowWhatGpusTake) {
  const uint64_t most = std::numeric_limits<uint64_t>::max() / 2;

  EXPECT_EQ(BlocksFor({.num_elements = most, .num_vectors = 0}, 1), 0x7FFFFFFFU);
}

}  // namespace
}  // namespace pushpull
