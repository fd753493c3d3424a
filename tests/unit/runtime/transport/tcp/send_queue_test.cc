// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/send_queue.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/transport/channel_rig.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

SteadyTime At(int64_t nanoseconds) {
  return SteadyTime(std::chrono::nanoseconds(nanoseconds));
}

// A socket that takes what it is offered, up to a limit for each call.
struct FakeSocket {
  std::vector<std::byte> bytes;

  size_t Take(std::span<const iovec> buffers, size_t limit) {
    const size_t before = bytes.size();
    for (const iovec& buffer : buffers) {
      const auto* begin = static_cast<const std::byte*>(buffer.iov_base);
      const size_t part = std::min(buffer.iov_len, limit - (bytes.size() - before));
      bytes.insert(bytes.end(), begin, begin + part);
    }
    return bytes.size() - before;
  }
};

size_t SizeOf(std::span<const iovec> buffers) {
  size_t total = 0;
  for (const iovec& buffer : buffers) total += buffer.iov_len;
  return total;
}

// The headers of the frames in `bytes`, which must be whole.
std::vector<FrameHeader> Headers(std::span<const std::byte> bytes) {
  std::vector<FrameHeader> headers;
  while (!bytes.empty()) {
    const absl::StatusOr<FrameHeader> header = DecodeFrameHeader(bytes.first<kFrameHeaderBytes>());
    if (!header.ok()) break;
    headers.push_back(*header);
    bytes = bytes.subspan(kFrameHeaderBytes + header->meta_bytes + header->payload_bytes);
  }
  return headers;
}

std::vector<uint64_t> Chunks(const std::vector<FrameHeader>& headers) {
  std::vector<uint64_t> chunks;
  chunks.reserve(headers.size());
  for (const FrameHeader& header : headers) chunks.push_back(header.chunk.value());
  return chunks;
}

TEST(SendQueueTest, AnySplitOfTheWritesGivesTheSameBytes) {
  const std::vector<std::byte> payload = Pattern(700);
  std::vector<std::byte> whole;
  for (const size_t limit :
       {size_t{1} << 20, size_t{1}, size_t{127}, size_t{128}, size_t{129}, size_t{1000}}) {
    SendQueue queue(100);
    for (uint64_t i = 0; i < 5; ++i) {
      OutgoingFrame frame = PushFrame(i, std::span(payload).first(i * 100));
      frame.meta = Pattern(i * 10);
      ASSERT_TRUE(queue.Push(std::move(frame)).ok());
    }

    FakeSocket socket;
    while (!queue.empty()) queue.Consume(socket.Take(queue.NextBuffers(At(1)), limit));

    if (whole.empty()) whole = socket.bytes;
    EXPECT_TRUE(socket.bytes == whole) << limit;
    EXPECT_THAT(Chunks(Headers(socket.bytes)), ElementsAre(0, 1, 2, 3, 4)) << limit;
  }
}

TEST(SendQueueTest, AStartedFrameIsFinishedBeforeAnUrgentOne) {
  const std::vector<std::byte> payload = Pattern(1000);
  SendQueue queue(100);
  for (const uint64_t chunk : {1U, 2U}) ASSERT_TRUE(queue.Push(PushFrame(chunk, payload, 9)).ok());
  FakeSocket socket;

  queue.Consume(socket.Take(queue.NextBuffers(At(1)), 500));
  ASSERT_TRUE(queue.Push(PushFrame(3, payload, 0)).ok());
  while (!queue.empty()) queue.Consume(socket.Take(queue.NextBuffers(At(2)), 1 << 20));

  EXPECT_THAT(Chunks(Headers(socket.bytes)), ElementsAre(1, 3, 2));
}

TEST(SendQueueTest, AnOfferedFrameThatWasNotStartedIsOvertaken) {
  const std::vector<std::byte> payload = Pattern(1000);
  SendQueue queue(100);
  ASSERT_TRUE(queue.Push(PushFrame(1, payload, 9)).ok());
  FakeSocket socket;

  queue.NextBuffers(At(1));  // the socket was full
  ASSERT_TRUE(queue.Push(PushFrame(2, payload, 0)).ok());
  while (!queue.empty()) queue.Consume(socket.Take(queue.NextBuffers(At(2)), 1 << 20));

  EXPECT_THAT(Chunks(Headers(socket.bytes)), ElementsAre(2, 1));
}

TEST(SendQueueTest, SentAtIsWhenTheFirstByteWasOffered) {
  const std::vector<std::byte> payload = Pattern(1000);
  SendQueue queue(100);
  for (const uint64_t chunk : {1U, 2U}) ASSERT_TRUE(queue.Push(PushFrame(chunk, payload)).ok());
  FakeSocket socket;

  queue.NextBuffers(At(10));
  queue.Consume(socket.Take(queue.NextBuffers(At(20)), 1));
  queue.Consume(socket.Take(queue.NextBuffers(At(30)), 1 << 20));

  const std::vector<FrameHeader> headers = Headers(socket.bytes);
  ASSERT_EQ(headers.size(), 2U);
  EXPECT_EQ(headers[0].sent_at, 20);
  EXPECT_EQ(headers[1].sent_at, 30);
}

TEST(SendQueueTest, BatchesSmallFramesAndSendsLargeOnesSingly) {
  const std::vector<std::byte> small = Pattern(100);
  const std::vector<std::byte> large = Pattern(kFramePayloadBytesMax);
  SendQueue small_ones(100);
  SendQueue large_ones(100);
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(small_ones.Push(PushFrame(i, small)).ok());
    ASSERT_TRUE(large_ones.Push(PushFrame(i, large)).ok());
  }

  EXPECT_EQ(SizeOf(small_ones.NextBuffers(At(1))), 20 * (kFrameHeaderBytes + 100));
  EXPECT_EQ(SizeOf(large_ones.NextBuffers(At(1))), kFrameHeaderBytes + large.size());
}

TEST(SendQueueTest, ACopiedHeaderLosesTheRequestsChecksum) {
  const std::vector<std::byte> payload = Pattern(1000);
  for (const bool has_checksums : {false, true}) {
    SendQueue queue(100);
    queue.SetPayloadChecksums(has_checksums);
    OutgoingFrame answer = PushFrame(1, payload);
    answer.header.flags = kFlagPayloadChecksum;
    answer.header.payload_checksum = ChecksumPayload(payload) + 1;
    ASSERT_TRUE(queue.Push(std::move(answer)).ok());
    FakeSocket socket;

    queue.Consume(socket.Take(queue.NextBuffers(At(1)), 1 << 20));

    const std::vector<FrameHeader> headers = Headers(socket.bytes);
    ASSERT_EQ(headers.size(), 1U);
    EXPECT_EQ(headers[0].flags, has_checksums ? kFlagPayloadChecksum : 0);
    EXPECT_EQ(headers[0].payload_checksum, has_checksums ? ChecksumPayload(payload) : 0);
  }
}

TEST(SendQueueTest, PayloadChecksumsAreAddedWhereAgreed) {
  const std::vector<std::byte> payload = Pattern(1000);
  for (const bool has_checksums : {false, true}) {
    SendQueue queue(100);
    queue.SetPayloadChecksums(has_checksums);
    ASSERT_TRUE(queue.Push(PushFrame(1, payload)).ok());
    ASSERT_TRUE(queue.Push(PushFrame(2, {})).ok());

    FakeSocket socket;
    socket.Take(queue.NextBuffers(At(1)), 1 << 20);

    const std::vector<FrameHeader> headers = Headers(socket.bytes);
    ASSERT_EQ(headers.size(), 2U);
    EXPECT_EQ(headers[0].flags, has_checksums ? kFlagPayloadChecksum : 0);
    EXPECT_EQ(headers[0].payload_checksum, has_checksums ? ChecksumPayload(payload) : 0);
    EXPECT_EQ(headers[1].flags, 0);
  }
}

TEST(SendQueueTest, APayloadIsReleasedAfterItsLastByte) {
  const std::vector<std::byte> payload = Pattern(1000);
  const auto owner = std::make_shared<int>(1);
  SendQueue queue(100);
  OutgoingFrame frame = PushFrame(1, payload);
  frame.payload.owner = owner;
  ASSERT_TRUE(queue.Push(std::move(frame)).ok());
  const size_t num_bytes = queue.num_bytes();

  queue.NextBuffers(At(1));
  queue.Consume(num_bytes - 1);
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_EQ(queue.num_bytes(), 1U);

  queue.NextBuffers(At(2));
  queue.Consume(1);
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace pushpull
