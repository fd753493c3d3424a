// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/frame_queue.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

OutgoingFrame Frame(uint64_t chunk, uint8_t priority, size_t meta_bytes = 0) {
  return {.header = {.type = FrameType::kPush, .priority = priority, .chunk = ChunkId{chunk}},
          .meta = std::vector<std::byte>(meta_bytes),
          .payload = {}};
}

TEST(FrameQueueTest, SmallerPrioritiesComeFirstAndEqualOnesInOrder) {
  FrameQueue queue(10);
  for (const auto& [chunk, priority] :
       std::vector<std::pair<uint64_t, uint8_t>>{{1, 5}, {2, 0}, {3, 255}, {4, 5}, {5, 0}}) {
    ASSERT_TRUE(queue.Push(Frame(chunk, priority)).ok());
  }

  std::vector<uint64_t> order;
  while (!queue.empty()) order.push_back(queue.Pop().header.chunk.value());

  EXPECT_THAT(order, ElementsAre(2, 5, 1, 4, 3));
}

TEST(FrameQueueTest, VisitsInTheOrderOfPopUntilStopped) {
  FrameQueue queue(10);
  for (const uint64_t chunk : {1U, 2U, 3U, 4U})
    ASSERT_TRUE(queue.Push(Frame(chunk, chunk % 2 == 0 ? 1 : 2)).ok());

  std::vector<uint64_t> visited;
  queue.ForEach([&](const OutgoingFrame& frame) {
    visited.push_back(frame.header.chunk.value());
    return visited.size() < 3;
  });

  EXPECT_THAT(visited, ElementsAre(2, 4, 1));
  EXPECT_EQ(queue.num_frames(), 4U);
}

TEST(FrameQueueTest, CountsFramesAndWireBytes) {
  FrameQueue queue(10);
  const std::vector<std::byte> payload(1000);
  OutgoingFrame frame = Frame(1, 0, 20);
  frame.payload.bytes = payload;

  ASSERT_TRUE(queue.Push(std::move(frame)).ok());
  ASSERT_TRUE(queue.Push(Frame(2, 0)).ok());
  EXPECT_EQ(queue.num_bytes(), 2 * kFrameHeaderBytes + 1020);

  const OutgoingFrame popped = queue.Pop();
  EXPECT_EQ(popped.header.meta_bytes, 20);
  EXPECT_EQ(popped.header.payload_bytes, 1000U);
  EXPECT_EQ(queue.num_bytes(), kFrameHeaderBytes);
}

TEST(FrameQueueTest, AFullQueueRejectsFramesUntilOneIsPopped) {
  FrameQueue queue(2);
  ASSERT_TRUE(queue.Push(Frame(1, 0)).ok());
  ASSERT_TRUE(queue.Push(Frame(2, 0)).ok());

  EXPECT_EQ(queue.Push(Frame(3, 0)).code(), absl::StatusCode::kResourceExhausted);
  queue.Pop();
  EXPECT_TRUE(queue.Push(Frame(4, 0)).ok());
}

TEST(FrameQueueTest, OversizedFramesAreRejected) {
  FrameQueue queue(2);
  const std::vector<std::byte> payload(kFramePayloadBytesMax + 1);
  OutgoingFrame frame = Frame(1, 0);
  frame.payload.bytes = payload;

  const absl::Status status = queue.Push(std::move(frame));

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1048577"));
  EXPECT_EQ(queue.Push(Frame(1, 0, kFrameMetaBytesMax + 1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(queue.empty());
}

TEST(FrameQueueTest, ClearReleasesPayloads) {
  FrameQueue queue(2);
  const auto owner = std::make_shared<int>(1);
  OutgoingFrame frame = Frame(1, 0);
  frame.payload.owner = owner;
  ASSERT_TRUE(queue.Push(std::move(frame)).ok());

  queue.Clear();

  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.num_bytes(), 0U);
}

}  // namespace
}  // namespace pushpull
