// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/chunk_record.h"

#include <array>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/wire_bytes.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/section.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

using HeaderBytes = std::array<std::byte, kRecordHeaderBytes>;

// Every field has a value of its own, so that two of them cannot be swapped unnoticed.
ChunkRecord SampleRecord() {
  return {.chunk = ChunkId{0xA1A2A3A4A5A6A7A8},
          .tensor = TensorId{0xB1B2B3B4},
          .index = 0xC1C2C3C4C5C6C7C8,
          .version = Step{0xD1D2D3D4D5D6D7D8},
          .updates = 0xE1E2E3E4E5E6E7E8,
          .epoch = {Term{0xF1F2F3F4F5F6F7F8}, 0x9192939495969798},
          .dtype = DType::kFloat32};
}

RecordParts SampleParts() {
  return {.section_bytes = 0x0001A2A3,
          .value_bytes = 0x0003B2B3,
          .state_bytes = 0x0031C2C3,
          .section_checksum = 0x6162636465666768,
          .value_checksum = 0x7172737475767778,
          .state_checksum = 0x8182838485868788};
}

HeaderBytes Encode(const ChunkRecord& record, const RecordParts& parts) {
  HeaderBytes bytes;
  EncodeRecordHeader(record, parts, bytes);
  return bytes;
}

TEST(RecordHeaderTest, EveryFieldIsReadBack) {
  HeaderBytes bytes;
  const uint64_t checksum = EncodeRecordHeader(SampleRecord(), SampleParts(), bytes);

  const absl::StatusOr<StoredRecord> header = DecodeRecordHeader(bytes, "file", 0);

  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->record, SampleRecord());
  EXPECT_EQ(header->parts, SampleParts());
  EXPECT_EQ(header->checksum, checksum);
}

TEST(RecordHeaderTest, AnyChangedBitIsNoticedAndItsPlaceNamed) {
  const HeaderBytes good = Encode(SampleRecord(), SampleParts());
  for (size_t bit = 0; bit < 8 * kRecordHeaderBytes; ++bit) {
    HeaderBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));

    const absl::Status status = DecodeRecordHeader(bad, "the/file", 640).status();

    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << bit;
    ASSERT_EQ(DamageOffset(status), 640) << bit;
    ASSERT_THAT(std::string(status.message()), HasSubstr("the/file at byte 640")) << bit;
  }
}

TEST(RecordHeaderTest, SizesThatNoRecordHasAreRefused) {
  const std::vector<std::function<void(RecordParts&)>> changes{
      [](RecordParts& parts) { parts.section_bytes = kRecordSectionBytesMax + 1; },
      [](RecordParts& parts) { parts.value_bytes = kChunkBytes + 1; },
      [](RecordParts& parts) { parts.state_bytes = kStateBytesMax + 1; }};
  for (const auto& change : changes) {
    RecordParts parts = SampleParts();
    change(parts);

    const absl::Status status =
        DecodeRecordHeader(Encode(SampleRecord(), parts), "file", 0).status();

    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  }
}

TEST(RecordHeaderTest, ADTypeOfALaterVersionIsToldFromDamage) {
  ChunkRecord record = SampleRecord();
  record.dtype = static_cast<DType>(7);

  const absl::Status status = DecodeRecordHeader(Encode(record, SampleParts()), "file", 0).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("dtype 7"));
}

TEST(RecordPartsTest, RecordsFillWholeMultiplesOfTheirAlignment) {
  for (uint32_t value_bytes = 1; value_bytes <= 2 * kRecordAlignment; ++value_bytes) {
    const RecordParts parts{.section_bytes = 3, .value_bytes = value_bytes, .state_bytes = 8};

    EXPECT_EQ(parts.RecordBytes() % kRecordAlignment, 0);
    EXPECT_LT(parts.PaddingBytes(), kRecordAlignment);
    EXPECT_EQ(parts.RecordBytes() - parts.PaddingBytes(), kRecordHeaderBytes + 3 + value_bytes + 8);
  }
}

TEST(RecordSectionsTest, UpdatesOfWorkersAreReadBack) {
  ChunkRecord record = SampleRecord();
  record.worker_updates = {{.worker = WorkerId{0}, .update = 5},
                           {.worker = WorkerId{4095}, .update = 1ULL << 40}};
  ChunkRecord read = SampleRecord();

  const absl::Status status = DecodeRecordSections(EncodeRecordSections(record), "file", 128, read);

  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(read, record);
}

TEST(RecordSectionsTest, ARecordWithoutUpdatesHasNoSections) {
  EXPECT_TRUE(EncodeRecordSections(SampleRecord()).empty());
}

TEST(RecordSectionsTest, UpdatesThatAreCutOffAreDamage) {
  ByteWriter sections;
  PutSection("worker-updates", SectionRule::kRequired, std::vector<std::byte>(15), sections);
  ChunkRecord read;

  const absl::Status status = DecodeRecordSections(sections.Take(), "file", 128, read);

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

TEST(SectionTest, AnUnknownOneIsPassedOverUnlessItIsRequired) {
  const std::vector<std::byte> some(3, std::byte{1});
  ByteWriter optional;
  PutSection("later", SectionRule::kSkip, some, optional);
  PutSection("known", SectionRule::kRequired, some, optional);
  ByteWriter required;
  PutSection("later", SectionRule::kRequired, some, required);
  const std::vector<std::byte> bytes = optional.Take();

  const auto read = ReadSections(bytes, {"known"}, "file", 0);
  const auto refused = ReadSections(required.Take(), {"known"}, "file", 0);

  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 1);
  EXPECT_EQ(read->front().name, "known");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("later"));
}

TEST(SectionTest, DamageIsPutAtTheStartOfItsSection) {
  ByteWriter writer;
  PutSection("first", SectionRule::kSkip, std::vector<std::byte>(10), writer);
  const size_t second_at = writer.num_bytes();
  PutSection("second", SectionRule::kSkip, std::vector<std::byte>(10), writer);
  std::vector<std::byte> bytes = writer.Take();
  bytes.back() ^= std::byte{1};

  const absl::Status status = ReadSections(bytes, {"first", "second"}, "file", 1000).status();

  EXPECT_EQ(DamageOffset(status), 1000 + second_at);
  EXPECT_THAT(std::string(status.message()), HasSubstr("second"));
}

}  // namespace
}  // namespace pushpull
