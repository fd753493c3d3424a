// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/buffer_pool.h"

#include <array>
#include <memory>
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

TEST(BufferPoolTest, KeepsManySizesAtATime) {
  BufferPool pool;
  std::vector<const std::byte*> memory;
  for (size_t i = 1; i <= 20; ++i) {
    HostBuffer buffer = *pool.Take(i * 1024);
    memory.push_back(buffer.bytes().data());
    pool.Return(std::move(buffer));
  }

  for (size_t i = 1; i <= 20; ++i) EXPECT_EQ(pool.Take(i * 1024)->bytes().data(), memory[i - 1]);
}

TEST(BufferPoolTest, FreesWhatWasNotUsedForLongestWhereItHasTooMuch) {
  constexpr size_t kLarge = BufferPool::kBytesMax / 2;
  BufferPool pool;
  HostBuffer small = *pool.Take(4096);
  HostBuffer large = *pool.Take(kLarge);
  HostBuffer larger = *pool.Take(kLarge + 4096);
  const std::byte* const memory = larger.bytes().data();
  pool.Return(std::move(small));
  pool.Return(std::move(large));
  pool.Return(std::move(larger));

  EXPECT_EQ(pool.num_bytes(), kLarge + 4096);
  EXPECT_EQ(pool.Take(kLarge + 4096)->bytes().data(), memory);
  EXPECT_EQ(pool.num_bytes(), 0U);
}

TEST(BufferPoolTest, LentMemoryGoesBackToItsLender) {
  class Lender final : public MemoryLender {
   public:
    void TakeBack(std::span<std::byte> memory) override { taken_back += memory.size(); }
    size_t taken_back = 0;
  };
  const auto lender = std::make_shared<Lender>();
  alignas(HostBuffer::kAlignment) std::array<std::byte, 64> memory{};
  BufferPool pool;

  pool.Return(HostBuffer::Lent(memory, lender));

  EXPECT_EQ(lender->taken_back, 64U);
  EXPECT_EQ(pool.num_bytes(), 0U);
}

}  // namespace
}  // namespace pushpull
