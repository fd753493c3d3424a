// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/chunk_file.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/wire_bytes.h"
#include "runtime/checkpoint/file_system.h"
#include "tests/fakes/memory_file_system.h"
#include "tests/unit/runtime/checkpoint/sample_checkpoint.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr ChunkFileId kId{.step = Step{42}, .attempt = 0xA7, .server = ServerId{3}, .lane = 1};
constexpr char kPath[] = "dir/step-000000000042/server-00003-lane-01-00000000000000a7.chunks";

// A file with one record that has all parts: sections, value, state and zeros at the end.
class ChunkFileTest : public ::testing::Test {
 protected:
  ChunkFileTest() {
    const SampleOptions options{.versions = ChunkVersions::kOfEachChunk};
    chunk_ = MakeSampleChunk(options, *MakeChunkTable(SampleTensors(options)), ChunkId{0});
  }

  void WriteFile() {
    auto writer = ChunkFileWriter::Create(files_, "dir", kId);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Append(chunk_.record, chunk_.value, chunk_.state).ok());
    auto summary = (*writer)->Finish();
    ASSERT_TRUE(summary.ok()) << summary.status();
    summary_ = *std::move(summary);
  }

  absl::Status Read() {
    const auto reader = ChunkFileReader::Open(files_, kPath);
    if (!reader.ok()) return reader.status();
    std::vector<std::byte> value(chunk_.value.size());
    std::vector<std::byte> state(chunk_.state.size());
    return reader->Read(summary_.chunks.front(), value, state).status();
  }

  MemoryFileSystem files_;
  SampleChunk chunk_;
  ChunkFileSummary summary_;
};

TEST_F(ChunkFileTest, TheSummarySaysWhereEachRecordIs) {
  WriteFile();

  EXPECT_EQ(JoinPath(StepFolder("dir", kId.step), summary_.name), kPath);
  EXPECT_EQ(summary_.bytes, files_.contents(kPath).size());
  EXPECT_THAT(files_.paths(), ElementsAre(kPath));
  ASSERT_EQ(summary_.chunks.size(), 1);
  EXPECT_EQ(summary_.chunks[0].offset, kFileHeaderBytes);
  EXPECT_EQ(summary_.chunks[0].bytes, summary_.bytes - kFileHeaderBytes);
  EXPECT_EQ(summary_.chunks[0].version, chunk_.record.version);
}

TEST_F(ChunkFileTest, AnyRecordIsReadAloneIntoTheCallersMemory) {
  const SampleOptions options{.num_servers = 1, .is_large = true};
  const ChunkTable table = *MakeChunkTable(SampleTensors(options));
  const auto summaries = WriteSampleFiles(files_, "dir", options);
  ASSERT_TRUE(summaries.ok()) << summaries.status();
  const auto reader = ChunkFileReader::Open(
      files_, JoinPath(StepFolder("dir", options.step), summaries->front().name));
  ASSERT_TRUE(reader.ok()) << reader.status();

  for (auto place = summaries->front().chunks.rbegin(); place != summaries->front().chunks.rend();
       ++place) {
    const SampleChunk chunk = MakeSampleChunk(options, table, place->chunk);
    std::vector<std::byte> value(chunk.value.size());
    std::vector<std::byte> state(chunk.state.size());
    const absl::StatusOr<ChunkRecord> record = reader->Read(*place, value, state);

    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_EQ(*record, chunk.record);
    EXPECT_EQ(value, chunk.value);
    EXPECT_EQ(state, chunk.state);
  }
}

TEST_F(ChunkFileTest, TheReaderKnowsWhoWroteTheFile) {
  WriteFile();

  const auto reader = ChunkFileReader::Open(files_, kPath);

  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->id(), kId);
}

TEST_F(ChunkFileTest, AFlippedBitIsRefusedWithFileAndTheStartOfItsRegion) {
  WriteFile();
  const std::vector<std::byte> good = files_.contents(kPath);
  const size_t sections_at = kFileHeaderBytes + kRecordHeaderBytes;
  const size_t value_at = sections_at + EncodeRecordSections(chunk_.record).size();
  const size_t state_at = value_at + chunk_.value.size();
  const size_t padding_at = state_at + chunk_.state.size();
  ASSERT_LT(padding_at, good.size());
  const std::vector<size_t> regions{
      0, kFileHeaderBytes, sections_at, value_at, state_at, padding_at, good.size()};
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    const size_t byte = bit / 8;
    files_.contents(kPath) = good;
    files_.contents(kPath)[byte] ^= static_cast<std::byte>(1 << (bit % 8));

    const absl::Status status = Read();

    const size_t region = *(std::upper_bound(regions.begin(), regions.end(), byte) - 1);
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << byte;
    ASSERT_EQ(DamageOffset(status), region) << byte << ": " << status;
    ASSERT_THAT(std::string(status.message()), HasSubstr(kPath));
  }
}

TEST_F(ChunkFileTest, CutAtAnyByteItIsRefused) {
  WriteFile();
  const std::vector<std::byte> good = files_.contents(kPath);
  for (size_t length = 0; length < good.size(); ++length) {
    files_.contents(kPath).resize(length);

    const absl::Status status = Read();

    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << length;
    ASSERT_THAT(std::string(status.message()), HasSubstr(kPath));
    files_.contents(kPath) = good;
  }
}

TEST_F(ChunkFileTest, ARecordThatIsAnotherThanTheManifestSaysIsRefused) {
  WriteFile();
  ChunkPlace& place = summary_.chunks.front();
  const ChunkPlace good = place;
  for (int i = 0; i < 4; ++i) {
    place = good;
    if (i == 0) place.chunk = ChunkId{1};
    if (i == 1) place.version = Step{7};
    if (i == 2) place.checksum ^= 1;
    if (i == 3) place.bytes += 64;

    EXPECT_EQ(Read().code(), absl::StatusCode::kDataLoss) << i;
  }
}

TEST_F(ChunkFileTest, MemoryOfAnotherSizeIsTheCallersMistake) {
  WriteFile();
  chunk_.state.resize(4);

  const absl::Status status = Read();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("120 of optimizer state, expected 60 and 4"));
}

TEST_F(ChunkFileTest, ALaterVersionIsRefusedWithBothVersions) {
  WriteFile();
  const std::span<std::byte> bytes = files_.contents(kPath);
  StoreNumber(uint16_t{2}, bytes.subspan(8));
  StoreNumber(ChecksumBytes(bytes.first(56)), bytes.subspan(56));

  const absl::Status status = Read();

  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has format version 2, this program reads up to version 1"));
}

TEST_F(ChunkFileTest, AFailureAtAnyPointIsReturnedAndLeavesNoFile) {
  WriteFile();
  const uint64_t num_operations = files_.num_operations();
  const absl::Status failure = absl::UnavailableError("fsync: Input/output error");
  for (uint64_t operation = 0; operation < num_operations; ++operation) {
    MemoryFileSystem files;
    files.FailAt(operation, failure);

    absl::Status status;
    {
      const auto writer = ChunkFileWriter::Create(files, "dir", kId);
      status = writer.status();
      if (status.ok()) status = (*writer)->Append(chunk_.record, chunk_.value, chunk_.state);
      if (status.ok()) status = (*writer)->Finish().status();
    }

    EXPECT_EQ(status, failure) << operation;
    EXPECT_THAT(files.paths(), IsEmpty()) << operation;
  }
}

TEST_F(ChunkFileTest, AfterAnErrorEveryCallReturnsIt) {
  auto writer = ChunkFileWriter::Create(files_, "dir", kId);
  ASSERT_TRUE(writer.ok()) << writer.status();
  files_.LimitBytes(files_.num_bytes() + 100);

  const absl::Status first = (*writer)->Append(chunk_.record, chunk_.value, chunk_.state);
  files_.LimitBytes(UINT64_MAX);
  const absl::Status second = (*writer)->Append(chunk_.record, chunk_.value, chunk_.state);
  const absl::Status finished = (*writer)->Finish().status();

  EXPECT_EQ(first.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(second, first);
  EXPECT_EQ(finished, first);
}

TEST_F(ChunkFileTest, AWriterThatIsGivenUpLeavesNoFile) {
  {
    const auto writer = ChunkFileWriter::Create(files_, "dir", kId);
    ASSERT_TRUE(writer.ok()) << writer.status();
  }

  EXPECT_THAT(files_.paths(), IsEmpty());
}

}  // namespace
}  // namespace pushpull
