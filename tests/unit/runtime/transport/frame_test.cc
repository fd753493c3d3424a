// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/frame.h"

#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::HasSubstr;

using HeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

// Every field has a different value, so that swapped fields are noticed.
FrameHeader SampleHeader() {
  return {.type = FrameType::kPushPull,
          .flags = kFlagPayloadChecksum,
          .codec = Codec::kNone,
          .dtype = DType::kFloat32,
          .reduction = Reduction::kMax,
          .priority = 0x17,
          .meta_bytes = 0x0123,
          .worker = WorkerId{0xA1A2A3A4},
          .incarnation = Incarnation{0xB1B2B3B4B5B6B7B8},
          .epoch = {Term{0xC1C2C3C4C5C6C7C8}, 0xD1D2D3D4D5D6D7D8},
          .chunk = ChunkId{0xE1E2E3E4E5E6E7E8},
          .step = Step{0xF1F2F3F4F5F6F7F8},
          .learning_rate = 0.1,
          .weight = 64,
          .trace_id = 0x9192939495969798,
          .sent_at = 0x7172737475767778,
          .payload_bytes = 0x000FEDCB,
          .payload_checksum = 0x8182838485868788};
}

HeaderBytes Encode(const FrameHeader& header) {
  HeaderBytes bytes;
  EncodeFrameHeader(header, bytes);
  return bytes;
}

// Applies `change` to an encoded header, then corrects its checksum.
HeaderBytes EncodeChanged(const std::function<void(HeaderBytes&)>& change) {
  HeaderBytes bytes = Encode(SampleHeader());
  change(bytes);
  const uint64_t checksum = XXH3_64bits(bytes.data(), 120);
  for (size_t i = 0; i < 8; ++i) bytes[120 + i] = static_cast<std::byte>(checksum >> (8 * i));
  return bytes;
}

auto Fields(const FrameHeader& h) {
  return std::tuple(h.type,
                    h.flags,
                    h.codec,
                    h.dtype,
                    h.reduction,
                    h.priority,
                    h.meta_bytes,
                    h.worker,
                    h.incarnation,
                    h.epoch,
                    h.chunk,
                    h.step,
                    h.learning_rate,
                    h.weight,
                    h.trace_id,
                    h.sent_at,
                    h.payload_bytes,
                    h.payload_checksum,
                    h.clock,
                    h.base_version);
}

TEST(FrameHeaderTest, EveryFieldIsReadBack) {
  FrameHeader header = SampleHeader();
  header.clock = Step{0x5152535455565758};  // not there yet when the golden bytes were written
  header.base_version = Step{0x6162636465666768};

  const absl::StatusOr<FrameHeader> decoded = DecodeFrameHeader(Encode(header));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(Fields(*decoded), Fields(header));
}

TEST(FrameHeaderTest, TheBytesOfVersion1NeverChange) {
  std::ifstream file(PUSHPULL_TEST_DATA "/frames/push_pull_v1.hex");
  std::string golden;
  for (std::string byte; file >> byte;) golden += byte + " ";

  std::string encoded;
  for (const std::byte byte : Encode(SampleHeader())) {
    constexpr char kDigits[] = "0123456789abcdef";
    encoded += kDigits[static_cast<int>(byte) >> 4];
    encoded += kDigits[static_cast<int>(byte) & 15];
    encoded += ' ';
  }

  EXPECT_EQ(encoded, golden);
}

TEST(FrameHeaderTest, AnyFlippedBitIsDetected) {
  const HeaderBytes good = Encode(SampleHeader());
  for (size_t bit = 0; bit < 8 * kFrameHeaderBytes; ++bit) {
    HeaderBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));

    EXPECT_EQ(DecodeFrameHeader(bad).status().code(), absl::StatusCode::kDataLoss) << bit;
  }
}

TEST(FrameHeaderTest, ALaterVersionIsDistinguishedFromDamage) {
  const HeaderBytes later = EncodeChanged([](HeaderBytes& bytes) { bytes[4] = std::byte{2}; });

  const absl::Status status = DecodeFrameHeader(later).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("version 2"));
}

TEST(FrameHeaderTest, EveryFlagIsAccepted) {
  FrameHeader header = SampleHeader();
  header.flags = kFlagPayloadChecksum | kFlagAdmission | kFlagInRegion | kFlagTakesInPlace |
                 kFlagOptimizerState | kFlagJoint | kFlagNoGradient;

  const absl::StatusOr<FrameHeader> decoded = DecodeFrameHeader(Encode(header));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->flags, header.flags);
}

struct BadField {
  const char* name;
  size_t offset;
  int value;
};

class FrameHeaderFieldTest : public ::testing::TestWithParam<BadField> {};

TEST_P(FrameHeaderFieldTest, AnOutOfRangeValueIsRejectedAndNamed) {
  const BadField& field = GetParam();
  const HeaderBytes bytes = EncodeChanged(
      [&](HeaderBytes& header) { header[field.offset] = static_cast<std::byte>(field.value); });

  const absl::Status status = DecodeFrameHeader(bytes).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(field.name));
}

INSTANTIATE_TEST_SUITE_P(Fields,
                         FrameHeaderFieldTest,
                         ::testing::Values(BadField{"version", 4, 0},
                                           BadField{"type", 6, 0},
                                           BadField{"type", 6, 28},
                                           BadField{"type", 6, 255},
                                           BadField{"flags", 7, 128},
                                           BadField{"codec", 8, 6},
                                           BadField{"codec", 8, 255},

                                           BadField{"dtype", 9, 0},
                                           BadField{"dtype", 9, 4},
                                           BadField{"reduction", 10, 0},
                                           BadField{"reduction", 10, 8},
                                           BadField{"meta", 13, 0x11},
                                           BadField{"payload", 18, 0x20},
                                           BadField{"payload", 19, 0xFF}));

TEST(FrameHeaderTest, APushHasTheCodecOfItsPayload) {
  FrameHeader header = SampleHeader();
  for (const FrameType type : {FrameType::kPush, FrameType::kPushPull}) {
    header.type = type;
    header.codec = Codec::kInt8;
    EXPECT_EQ(DecodeFrameHeader(Encode(header))->codec, Codec::kInt8);
  }
  header.type = FrameType::kInit;
  const absl::Status status = DecodeFrameHeader(Encode(header)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("codec 3"));
}

TEST(FrameHeaderTest, TheLongestMetaAndPayloadPass) {
  FrameHeader header = SampleHeader();
  header.meta_bytes = kFrameMetaBytesMax;
  header.payload_bytes = kFramePayloadBytesMax;

  EXPECT_TRUE(DecodeFrameHeader(Encode(header)).ok());
}

TEST(PublishedTimingTest, EveryFieldIsReadBack) {
  const PublishedTiming timing{1, -2, 3, 4, 5, 6, 7, int64_t{1} << 60, ~uint64_t{9}};

  const absl::StatusOr<PublishedTiming> decoded =
      DecodePublishedTiming(EncodePublishedTiming(timing));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->push_sent_at, 1);
  EXPECT_EQ(decoded->received_at, -2);
  EXPECT_EQ(decoded->server_queue_ns, 3);
  EXPECT_EQ(decoded->sum_ns, 4);
  EXPECT_EQ(decoded->wait_ns, 5);
  EXPECT_EQ(decoded->optimize_ns, 6);
  EXPECT_EQ(decoded->replicate_ns, 7);
  EXPECT_EQ(decoded->published_at, int64_t{1} << 60);
  EXPECT_EQ(decoded->contributors, ~uint64_t{9});
}

TEST(PublishedTimingTest, WhatALaterVersionAppendsIsIgnored) {
  std::vector<std::byte> meta = EncodePublishedTiming({.sum_ns = 4});
  meta.resize(meta.size() + 8);

  EXPECT_EQ(DecodePublishedTiming(meta)->sum_ns, 4);
}

TEST(PublishedTimingTest, AShortOneIsRejected) {
  std::vector<std::byte> meta = EncodePublishedTiming({});
  meta.pop_back();

  const absl::Status status = DecodePublishedTiming(meta).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("71"));
}

TEST(RefusalTest, CodeAndTextAreReadBack) {
  const absl::Status why = absl::AbortedError("worker-3 is not a member: rejoin");

  EXPECT_EQ(DecodeRefusal(EncodeRefusal(why)), why);
}

TEST(RefusalTest, ALongTextIsCutToFitAFrame) {
  const std::vector<std::byte> meta = EncodeRefusal(absl::AbortedError(std::string(1 << 20, 'x')));

  EXPECT_LE(meta.size(), kFrameMetaBytesMax);
  EXPECT_EQ(DecodeRefusal(meta).code(), absl::StatusCode::kAborted);
}

TEST(RefusalTest, AnUnknownCodeIsStillARefusal) {
  std::vector<std::byte> meta = EncodeRefusal(absl::AbortedError("text"));
  meta[0] = std::byte{200};

  EXPECT_EQ(DecodeRefusal(meta), absl::UnknownError("text"));
}

TEST(RefusalTest, AnOkOrTruncatedOneIsDataLoss) {
  std::vector<std::byte> cut = EncodeRefusal(absl::AbortedError("text"));
  cut.pop_back();

  EXPECT_EQ(DecodeRefusal(EncodeRefusal(absl::OkStatus())).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodeRefusal(cut).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodeRefusal({}).code(), absl::StatusCode::kDataLoss);
}

// A peer may have a processor with other vectors, and checkpoints have these checksums too.
TEST(ChecksumPayloadTest, EqualsTheLibrarysPortableVersion) {
  std::vector<std::byte> payload(kFramePayloadBytesMax);
  for (size_t i = 0; i < payload.size(); ++i)
    payload[i] = static_cast<std::byte>(i * 167 + i / 251);

  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{100}, size_t{241}, size_t{65'537}, payload.size()})
    EXPECT_EQ(ChecksumPayload(std::span(payload).first(size)), XXH3_64bits(payload.data(), size));
}

}  // namespace
}  // namespace pushpull
