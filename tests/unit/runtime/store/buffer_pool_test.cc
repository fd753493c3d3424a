// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/buffer_pool.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(BufferPoolTest, GivesBackMemoryOfTheSameSize) {
  BufferPool pool;
  HostBuffer buffer = *pool.Take(1 << 20);
  const std::byte* memory = buffer.bytes().data();

  pool.Return(std::move(buffer));

  EXPECT_EQ(pool.Take(1 << 20)->bytes().data(), memory);
}

TEST(BufferPoolTest, ABufferHasTheSizeThatWasAskedFor) {
  BufferPool pool;
  pool.Return(*pool.Take(4096));

  EXPECT_EQ(pool.Take(8192)->num_bytes(), 8192U);
  EXPECT_EQ(pool.Take(4096)->num_bytes(), 4096U);
}

}  // namespace
}  // namespace pushpull
