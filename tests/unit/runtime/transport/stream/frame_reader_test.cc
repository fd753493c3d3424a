// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/stream/frame_reader.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/status_macros.h"
#include "tests/unit/runtime/transport/channel_rig.h"
#include "tests/unit/runtime/transport/raw_peer.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr SteadyTime kNow{std::chrono::seconds(5)};

class RecordingSink final : public FrameSink {
 public:
  std::span<std::byte> PayloadBuffer(const FrameHeader& header) override {
    if (discards) return {};
    buffer.resize(header.payload_bytes);
    return buffer;
  }
  void OnFrame(const ReceivedFrame& frame) override {
    chunks.push_back(frame.header.chunk.value());
    metas.emplace_back(frame.meta.begin(), frame.meta.end());
    payloads.emplace_back(frame.payload.begin(), frame.payload.end());
    received_at = frame.received_at;
    if (chunks.size() == closes_after) is_open = false;
  }
  bool IsOpen() const override { return is_open; }

  bool discards = false;
  bool is_open = true;
  size_t closes_after = 0;
  std::vector<std::byte> buffer;
  std::vector<uint64_t> chunks;
  std::vector<std::vector<std::byte>> metas;
  std::vector<std::vector<std::byte>> payloads;
  SteadyTime received_at;
};

// Hands `bytes` to the reader as reads of at most `part` bytes would.
absl::Status Feed(FrameReader& reader, std::span<const std::byte> bytes, size_t part) {
  while (!bytes.empty()) {
    size_t taken = 0;
    for (const iovec& buffer : reader.NextBuffers()) {
      const size_t fits = std::min({buffer.iov_len, part - taken, bytes.size()});
      std::copy_n(bytes.begin(), fits, static_cast<std::byte*>(buffer.iov_base));
      bytes = bytes.subspan(fits);
      taken += fits;
    }
    PUSHPULL_RETURN_IF_ERROR(reader.Consume(taken, kNow));
  }
  return absl::OkStatus();
}

FrameHeader Push(uint64_t chunk) {
  return {.type = FrameType::kPush, .chunk = ChunkId{chunk}};
}

class FrameReaderSplitTest : public ::testing::TestWithParam<size_t> {};

TEST_P(FrameReaderSplitTest, FramesComeOutOfAnySplit) {
  const std::vector<size_t> sizes{0, 1, 4096, 100'000, 0, kFramePayloadBytesMax, 10};
  std::vector<std::byte> stream;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<std::byte> frame =
        EncodeFrame(Push(i), Pattern(i * 600), Pattern(sizes[i], static_cast<uint32_t>(i)));
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  RecordingSink sink;
  FrameReader reader(sink);

  const absl::Status fed = Feed(reader, stream, GetParam());

  ASSERT_TRUE(fed.ok()) << fed;
  ASSERT_THAT(sink.chunks, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_TRUE(sink.metas[i] == Pattern(i * 600)) << i;
    EXPECT_TRUE(sink.payloads[i] == Pattern(sizes[i], static_cast<uint32_t>(i))) << i;
  }
  EXPECT_EQ(reader.UnfinishedPayload(), nullptr);
  EXPECT_EQ(reader.num_staged(), 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Splits,
    FrameReaderSplitTest,
    ::testing::Values(127, 128, 129, 1000, 4096, 65536, 65537, 1 << 20, 1 << 30));

TEST(FrameReaderTest, SmallFramesComeOutByteForByte) {
  const std::vector<std::byte> payload = Pattern(50);
  std::vector<std::byte> stream = EncodeFrame(Push(1), Pattern(3), payload);
  const std::vector<std::byte> second = EncodeFrame(Push(2), {}, {});
  stream.insert(stream.end(), second.begin(), second.end());
  RecordingSink sink;
  FrameReader reader(sink);

  ASSERT_TRUE(Feed(reader, stream, 1).ok());

  EXPECT_THAT(sink.chunks, ElementsAre(1, 2));
  EXPECT_TRUE(sink.payloads[0] == payload);
  EXPECT_EQ(sink.received_at, kNow);
}

TEST(FrameReaderTest, ALargePayloadGoesStraightToItsPlace) {
  const std::vector<std::byte> stream = EncodeFrame(Push(1), {}, Pattern(kFramePayloadBytesMax));
  RecordingSink sink;
  FrameReader reader(sink);
  ASSERT_TRUE(Feed(reader, std::span(stream).first(kFrameHeaderBytes), 1 << 30).ok());

  const std::span<const iovec> buffers = reader.NextBuffers();

  ASSERT_EQ(buffers.size(), 2U);
  EXPECT_EQ(buffers[0].iov_base, sink.buffer.data());
  EXPECT_EQ(buffers[0].iov_len, kFramePayloadBytesMax);
  // Room for the next header, not for the next payload.
  EXPECT_GE(buffers[1].iov_len, kFrameHeaderBytes);
  EXPECT_LE(buffers[1].iov_len, 1024U);
}

TEST(FrameReaderTest, ADiscardedPayloadIsSkippedAndNotChecked) {
  FrameHeader header = Push(1);
  header.flags = kFlagPayloadChecksum;
  std::vector<std::byte> stream = EncodeFrame(header, {}, Pattern(300'000));
  const std::vector<std::byte> second = EncodeFrame(Push(2), {}, {});
  stream.insert(stream.end(), second.begin(), second.end());
  RecordingSink sink;
  sink.discards = true;
  FrameReader reader(sink);

  ASSERT_TRUE(Feed(reader, stream, 1 << 30).ok());

  EXPECT_THAT(sink.chunks, ElementsAre(1, 2));
  EXPECT_TRUE(sink.payloads[0].empty());
}

TEST(FrameReaderTest, AWrongPayloadChecksumIsDataLossAndNamesTheChunk) {
  const std::vector<std::byte> payload = Pattern(1000);
  FrameHeader header = Push(77);
  header.flags = kFlagPayloadChecksum;
  header.payload_checksum = ChecksumPayload(payload);
  std::vector<std::byte> stream = EncodeFrame(header, {}, payload);
  RecordingSink sink;
  FrameReader good(sink);
  ASSERT_TRUE(Feed(good, stream, 1 << 30).ok());
  stream.back() ^= std::byte{1};
  FrameReader bad(sink);

  const absl::Status status = Feed(bad, stream, 1 << 30);

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("77"));
  EXPECT_THAT(sink.chunks, ElementsAre(77));
}

TEST(FrameReaderTest, GarbageIsDataLossAtTheFirstHeader) {
  RecordingSink sink;
  FrameReader reader(sink);

  const absl::Status status = Feed(reader, Pattern(kFrameHeaderBytes), 1 << 30);

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

TEST(FrameReaderTest, ABufferOfTheWrongLengthIsAnError) {
  class WrongSink final : public FrameSink {
   public:
    std::span<std::byte> PayloadBuffer(const FrameHeader&) override { return buffer_; }
    void OnFrame(const ReceivedFrame&) override {}
    bool IsOpen() const override { return true; }

   private:
    std::vector<std::byte> buffer_ = std::vector<std::byte>(9);
  };
  WrongSink sink;
  FrameReader reader(sink);

  const absl::Status status = Feed(reader, EncodeFrame(Push(1), {}, Pattern(10)), 1 << 30);

  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
}

TEST(FrameReaderTest, ReportsAnUnfinishedPayload) {
  const std::vector<std::byte> stream = EncodeFrame(Push(5), {}, Pattern(1000));
  RecordingSink sink;
  FrameReader reader(sink);

  ASSERT_TRUE(Feed(reader, std::span(stream).first(stream.size() - 1), 1 << 30).ok());

  ASSERT_NE(reader.UnfinishedPayload(), nullptr);
  EXPECT_EQ(reader.UnfinishedPayload()->chunk, ChunkId{5});
}

TEST(FrameReaderTest, BytesReadAheadAreHandedOutAfterAPause) {
  std::vector<std::byte> stream;
  for (const uint64_t chunk : {1U, 2U, 3U}) {
    const std::vector<std::byte> frame = EncodeFrame(Push(chunk), {}, Pattern(10));
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  RecordingSink sink;
  sink.closes_after = 1;
  FrameReader reader(sink);

  ASSERT_TRUE(Feed(reader, stream, 1 << 30).ok());
  EXPECT_THAT(sink.chunks, ElementsAre(1));
  EXPECT_GT(reader.num_staged(), 0U);
  sink.is_open = true;
  ASSERT_TRUE(reader.Consume(0, kNow).ok());

  EXPECT_THAT(sink.chunks, ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace pushpull
