// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor/host_buffer.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kSizes[] = {1,
                             64,
                             4095,
                             4096,
                             HostBuffer::kMappedBytes - 1,
                             HostBuffer::kMappedBytes,
                             (size_t{1} << 20) + 12};

bool IsAligned(const HostBuffer& buffer, size_t alignment) {
  return reinterpret_cast<uintptr_t>(buffer.bytes().data()) % alignment == 0;
}

// Anonymous memory of this process that is in RAM.
size_t ResidentAnonymousBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t kilobytes = 0;
    if (word == "RssAnon:" && status >> kilobytes) return kilobytes * 1024;
  }
  ADD_FAILURE() << "/proc/self/status has no RssAnon";
  return 0;
}

TEST(HostBufferTest, EverySizeIsAlignedAndWritable) {
  for (const size_t num_bytes : kSizes) {
    absl::StatusOr<HostBuffer> buffer = HostBuffer::Uninitialized(num_bytes);

    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ASSERT_EQ(buffer->num_bytes(), num_bytes);
    EXPECT_TRUE(IsAligned(*buffer, num_bytes >= 4096 ? 4096 : 64)) << num_bytes;
    std::ranges::fill(buffer->bytes(), std::byte{0xA5});
    EXPECT_EQ(buffer->bytes().back(), std::byte{0xA5});
  }
}

TEST(HostBufferTest, ZeroedClearsReusedMemory) {
  for (const size_t num_bytes : kSizes) {
    {
      HostBuffer dirty = HostBuffer::Uninitialized(num_bytes).value();
      std::ranges::fill(dirty.bytes(), std::byte{0xFF});
    }

    const HostBuffer buffer = HostBuffer::Zeroed(num_bytes).value();

    EXPECT_TRUE(std::ranges::all_of(buffer.bytes(), [](std::byte b) { return b == std::byte{0}; }))
        << num_bytes;
  }
}

TEST(HostBufferTest, BufferMayBeEmpty) {
  const HostBuffer buffer = HostBuffer::Zeroed(0).value();

  EXPECT_THAT(buffer.bytes(), IsEmpty());
  EXPECT_THAT(buffer.floats(), IsEmpty());
}

TEST(HostBufferTest, FloatsViewTheSameMemory) {
  HostBuffer buffer = HostBuffer::Zeroed(4 * sizeof(float)).value();

  buffer.floats()[3] = 1.0F;

  ASSERT_EQ(buffer.floats().size(), 4U);
  EXPECT_EQ(static_cast<const void*>(buffer.floats().data()), buffer.bytes().data());
  EXPECT_EQ(buffer.bytes()[15], std::byte{0x3F});  // 1.0F is 0x3F800000
}

TEST(HostBufferTest, MoveTransfersTheMemory) {
  for (const size_t num_bytes : kSizes) {
    HostBuffer from = HostBuffer::Zeroed(num_bytes).value();
    const std::byte* memory = from.bytes().data();
    HostBuffer to = HostBuffer::Zeroed(128).value();

    to = std::move(from);
    HostBuffer last(std::move(to));

    EXPECT_EQ(last.bytes().data(), memory);
    EXPECT_EQ(last.num_bytes(), num_bytes);
    EXPECT_EQ(to.num_bytes(), 0U);    // NOLINT(bugprone-use-after-move): the contract says empty
    EXPECT_EQ(from.num_bytes(), 0U);  // NOLINT(bugprone-use-after-move): the contract says empty
  }
  static_assert(!std::is_copy_constructible_v<HostBuffer>);
}

TEST(HostBufferTest, OutOfMemoryNamesTheSize) {
  const size_t more_than_addresses = size_t{1} << 62;

  const absl::StatusOr<HostBuffer> buffer = HostBuffer::Uninitialized(more_than_addresses);

  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(buffer.status().message(), HasSubstr("4611686018427387904 bytes"));
}

TEST(HostBufferTest, FreedMemoryIsReturnedToTheSystem) {
  constexpr size_t kMiB = size_t{1} << 20;
  std::vector<HostBuffer> freed;
  std::vector<HostBuffer> kept;
  for (int i = 0; i < 32; ++i) {
    std::vector<HostBuffer>& list = i % 2 == 0 ? freed : kept;
    list.push_back(HostBuffer::Uninitialized(kMiB).value());
    std::ranges::fill(list.back().bytes(), std::byte{1});
  }
  const size_t before = ResidentAnonymousBytes();

  freed.clear();

  EXPECT_LE(ResidentAnonymousBytes() + 15 * kMiB, before);
  for (const HostBuffer& buffer : kept) EXPECT_EQ(buffer.bytes().back(), std::byte{1});
}

TEST(HostBufferTest, ZeroedMemoryIsResidentOnFirstUse) {
  constexpr size_t kMiB = size_t{1} << 20;
  const size_t before = ResidentAnonymousBytes();

  const HostBuffer buffer = HostBuffer::Zeroed(64 * kMiB).value();

  EXPECT_LE(ResidentAnonymousBytes(), before + kMiB);
}

}  // namespace
}  // namespace pushpull
