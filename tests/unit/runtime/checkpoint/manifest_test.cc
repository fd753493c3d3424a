// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manifest.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/wire_bytes.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/section.h"
#include "tests/fakes/memory_file_system.h"
#include "tests/unit/runtime/checkpoint/sample_checkpoint.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CheckpointManifest CompleteManifest(const SampleOptions& options = {}) {
  MemoryFileSystem files;
  const auto summaries = WriteSampleFiles(files, "dir", options);
  CheckpointManifest manifest = SampleManifest(options);
  manifest.sequence = 9;
  EXPECT_TRUE(summaries.ok() && AddFiles(*summaries, manifest).ok());
  return manifest;
}

// Header of `bytes` with another version, and a checksum that is right.
std::vector<std::byte> WithVersion(std::vector<std::byte> bytes, uint16_t version) {
  StoreNumber(version, std::span(bytes).subspan(8));
  StoreNumber(ChecksumBytes(std::span(bytes).first(56)), std::span(bytes).subspan(56));
  return bytes;
}

// `bytes` with one more section at the end, and checksums that are right.
std::vector<std::byte> WithSection(std::vector<std::byte> bytes, SectionRule rule) {
  ByteWriter section;
  PutSection("of-tomorrow", rule, std::vector<std::byte>(5), section);
  const std::vector<std::byte> more = section.Take();
  bytes.insert(bytes.end(), more.begin(), more.end());
  const auto body = std::span(bytes).subspan(kManifestHeaderBytes);
  StoreNumber(uint64_t{body.size()}, std::span(bytes).subspan(24));
  StoreNumber(ChecksumBytes(body), std::span(bytes).subspan(32));
  return WithVersion(bytes, 1);
}

TEST(ManifestTest, EverythingIsReadBack) {
  for (const ChunkVersions versions : {ChunkVersions::kOfOneStep, ChunkVersions::kOfEachChunk}) {
    const CheckpointManifest saved = CompleteManifest({.versions = versions, .is_large = true});

    const absl::StatusOr<CheckpointManifest> read = DecodeManifest(EncodeManifest(saved), "file");

    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->owner, saved.owner);
    EXPECT_EQ(read->step, saved.step);
    EXPECT_EQ(read->mode, saved.mode);
    EXPECT_EQ(read->versions, saved.versions);
    EXPECT_EQ(read->written_at, saved.written_at);
    EXPECT_EQ(read->sequence, 9);
    EXPECT_EQ(read->files, saved.files);
    EXPECT_EQ(read->chunks, saved.chunks);
    EXPECT_EQ(read->system, saved.system);
    ASSERT_EQ(read->tensors.size(), saved.tensors.size());
    for (size_t i = 0; i < saved.tensors.size(); ++i) {
      EXPECT_EQ(read->tensors[i].name, saved.tensors[i].name);
      EXPECT_EQ(read->tensors[i].dims, saved.tensors[i].dims);
      EXPECT_EQ(read->tensors[i].dtype, saved.tensors[i].dtype);
      EXPECT_EQ(read->tensors[i].reduction, saved.tensors[i].reduction);
      EXPECT_EQ(read->tensors[i].optimizer, saved.tensors[i].optimizer);
    }
  }
}

TEST(ManifestTest, TheNamespaceIsReadBack) {
  CheckpointManifest saved = CompleteManifest();
  saved.owner.job_namespace = "lab";

  const absl::StatusOr<CheckpointManifest> read = DecodeManifest(EncodeManifest(saved), "file");

  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToString(read->owner), "lab/sample");
}

TEST(ManifestTest, AnyChangedBitIsRefusedAtAnOffsetBeforeIt) {
  const std::vector<std::byte> good = EncodeManifest(CompleteManifest());
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));

    const absl::Status status = DecodeManifest(bad, "the/file").status();

    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << bit << ": " << status;
    ASSERT_TRUE(DamageOffset(status).has_value()) << bit << ": " << status;
    ASSERT_LE(*DamageOffset(status), bit / 8) << status;
    ASSERT_THAT(std::string(status.message()), HasSubstr("the/file at byte ")) << bit;
  }
}

TEST(ManifestTest, CutAtAnyByteItIsDamaged) {
  const std::vector<std::byte> whole = EncodeManifest(CompleteManifest());
  for (size_t length = 0; length < whole.size(); ++length) {
    const absl::Status status = DecodeManifest(std::span(whole).first(length), "file").status();

    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << length;
  }
}

TEST(ManifestTest, ALaterVersionIsToldFromDamageAndStillPutInOrder) {
  const std::vector<std::byte> later = WithVersion(EncodeManifest(CompleteManifest()), 3);

  const absl::Status status = DecodeManifest(later, "file").status();
  const absl::StatusOr<ManifestHeader> header = DecodeManifestHeader(later, "file");

  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(std::string(status.message()),
            "file: has format version 3, this program reads up to version 1");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->sequence, 9);
}

TEST(ManifestTest, AnUnknownSectionIsPassedOverUnlessItIsRequired) {
  const std::vector<std::byte> good = EncodeManifest(CompleteManifest());

  const absl::Status optional =
      DecodeManifest(WithSection(good, SectionRule::kSkip), "file").status();
  const absl::Status required =
      DecodeManifest(WithSection(good, SectionRule::kRequired), "file").status();

  EXPECT_TRUE(optional.ok()) << optional;
  EXPECT_EQ(required.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(required.message()), HasSubstr("of-tomorrow"));
}

TEST(ManifestTest, BrokenRulesAreRejectedOnWriteAndOnRead) {
  const std::vector<std::function<void(CheckpointManifest&)>> changes{
      [](CheckpointManifest& m) { m.owner.job.clear(); },
      [](CheckpointManifest& m) { m.owner.job_namespace = std::string(kTextBytesMax + 1, 'a'); },
      [](CheckpointManifest& m) { m.mode = std::string(kTextBytesMax + 1, 'a'); },
      [](CheckpointManifest& m) { m.tensors[0].name = m.tensors[1].name; },
      [](CheckpointManifest& m) { m.tensors[0].dims = {-1}; },
      [](CheckpointManifest& m) { m.tensors[0].optimizer.learning_rate = -1; },
      [](CheckpointManifest& m) { m.files[0].name = "../outside"; },
      [](CheckpointManifest& m) { m.files[0].name = m.files[1].name; },
      [](CheckpointManifest& m) { m.files[0].bytes = 63; },
      [](CheckpointManifest& m) { m.chunks.pop_back(); },
      [](CheckpointManifest& m) { m.chunks[1].file = 2; },
      [](CheckpointManifest& m) { m.chunks[1].place.offset = UINT64_MAX - 63; },
      [](CheckpointManifest& m) { m.chunks[1].place.offset += 1; },
      [](CheckpointManifest& m) { m.chunks[1].place.bytes = UINT32_MAX; },
      [](CheckpointManifest& m) { m.chunks[1].place.bytes = 128; },
      [](CheckpointManifest& m) { m.chunks[1].place.version = Step{41}; },
      [](CheckpointManifest& m) { m.system[0].name = m.system[1].name; },
      [](CheckpointManifest& m) { m.system[0].name = "a\nb"; },
      [](CheckpointManifest& m) { m.owner.job = "\x1b[2J"; },
      [](CheckpointManifest& m) { m.owner.job_namespace = "\xff"; },
      [](CheckpointManifest& m) { m.mode = "\u202e"; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    CheckpointManifest manifest = CompleteManifest();
    changes[i](manifest);

    const absl::Status checked = CheckManifest(manifest);
    const absl::Status read = DecodeManifest(EncodeManifest(manifest), "file").status();

    EXPECT_EQ(checked.code(), absl::StatusCode::kInvalidArgument) << i;
    // A text that is too long is cut when it is encoded.
    if (i != 1 && i != 2) {
      EXPECT_EQ(read.code(), absl::StatusCode::kDataLoss) << i << ": " << read;
    }
  }
}

TEST(AddFilesTest, AChunkThatNobodyCapturedIsNamedWithItsTensor) {
  MemoryFileSystem files;
  auto summaries = WriteSampleFiles(files, "dir", {.num_servers = 1});
  ASSERT_TRUE(summaries.ok()) << summaries.status();
  summaries->front().chunks.erase(summaries->front().chunks.begin() + 2);
  CheckpointManifest manifest = SampleManifest({});

  const absl::Status status = AddFiles(*summaries, manifest);

  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            "checkpoint of step 42: chunk 2 (tensor scale, index 0) was captured by nobody");
}

TEST(AddFilesTest, AChunkThatIsPastTheStepFailsTheCheckpoint) {
  MemoryFileSystem files;
  auto summaries = WriteSampleFiles(files, "dir", {});
  ASSERT_TRUE(summaries.ok()) << summaries.status();
  summaries->front().chunks.front().version = Step{43};
  CheckpointManifest manifest = SampleManifest({});

  const absl::Status status = AddFiles(*summaries, manifest);

  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            "checkpoint of step 42: chunk 0 (tensor layer.weight, index 0) has version 43");
}

TEST(AddFilesTest, AChunkThatWasCapturedTwiceIsTakenOnce) {
  MemoryFileSystem files;
  auto summaries = WriteSampleFiles(files, "dir", {});
  ASSERT_TRUE(summaries.ok()) << summaries.status();
  (*summaries)[1].chunks.push_back(summaries->front().chunks.front());
  CheckpointManifest manifest = SampleManifest({});

  const absl::Status status = AddFiles(*summaries, manifest);

  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(manifest.chunks[0].file, 0);
  EXPECT_TRUE(CheckManifest(manifest).ok());
}

TEST(CompareTensorsTest, TheSameTensorsInAnyOrderDoNotDiffer) {
  const CheckpointManifest manifest = SampleManifest({});
  std::vector<TensorSpec> wanted = manifest.tensors;
  std::reverse(wanted.begin(), wanted.end());
  wanted.back().optimizer.learning_rate = 0.5;

  EXPECT_THAT(CompareTensors(manifest, wanted), IsEmpty());
}

// A checkpoint has their float32 values.
TEST(CompareTensorsTest, HalvesAndFloat32DoNotDiffer) {
  const CheckpointManifest manifest = SampleManifest({});
  std::vector<TensorSpec> wanted = manifest.tensors;
  for (TensorSpec& tensor : wanted) tensor.dtype = DType::kBFloat16;

  EXPECT_THAT(CompareTensors(manifest, wanted), IsEmpty());
}

TEST(CompareTensorsTest, EachDifferenceIsALineOfItsOwn) {
  const CheckpointManifest manifest = SampleManifest({});
  std::vector<TensorSpec> wanted = manifest.tensors;
  wanted[0].dims = {5, 3};
  wanted[1].optimizer.momentum = 0;
  wanted[2].optimizer = {};
  wanted[4].dtype = static_cast<DType>(7);
  wanted[5].name = "speeds";

  EXPECT_THAT(
      CompareTensors(manifest, wanted),
      ElementsAre(
          "tensor layer.weight: has shape [3, 5] in the checkpoint, [5, 3] in the job",
          "tensor layer.bias: has optimizer sgd(learning_rate=0.1, momentum=0.9) in the "
          "checkpoint, sgd(learning_rate=0.1) in the job",
          "tensor scale: has optimizer sgd(learning_rate=1) in the checkpoint, sum in the job",
          "tensor count: is float32 in the checkpoint, dtype 7 in the job",
          "tensor speeds: is in the job, not in the checkpoint",
          "tensor rates: is in the checkpoint, not in the job"));
}

TEST(MatchChunksTest, ChunksAreFoundInAnyOrderOfTensors) {
  const CheckpointManifest manifest = CompleteManifest({.is_large = true});
  std::vector<TensorSpec> wanted = manifest.tensors;
  std::reverse(wanted.begin(), wanted.end());

  const std::vector<size_t> positions = MatchChunks(manifest, wanted);

  // The large tensor has three chunks and comes first, the empty one has none.
  EXPECT_THAT(positions, ElementsAre(6, 7, 8, 5, 4, 3, 2, 1, 0));
  EXPECT_THAT(MatchChunks(manifest, manifest.tensors), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(CompareValuesTest, OnlyShapeAndTypeOfTensorsThatBothHaveCount) {
  const CheckpointManifest manifest = SampleManifest({});
  std::vector<TensorSpec> wanted = manifest.tensors;
  wanted[0].optimizer = {};
  wanted[1].dims = {6};
  wanted[2].name = "head";
  wanted[3].name = "pushpull.samples";

  EXPECT_THAT(CompareValues(manifest, wanted),
              ElementsAre("tensor layer.bias: has shape [5] in the checkpoint, [6] in the job"));
  EXPECT_THAT(LackingValues(manifest, wanted), ElementsAre("head"));
  EXPECT_THAT(CompareValues(manifest, std::span(wanted).subspan(2, 2)),
              ElementsAre("it has none of the job's tensors"));
}

TEST(MatchValuesTest, ChunksOfTensorsThatTheCheckpointLacksHaveNoPlace) {
  const CheckpointManifest manifest = CompleteManifest({.is_large = true});
  std::vector<TensorSpec> wanted = manifest.tensors;
  std::reverse(wanted.begin(), wanted.end());
  wanted[1].name = "head";

  EXPECT_THAT(MatchValues(manifest, wanted), ElementsAre(6, 7, 8, std::nullopt, 4, 3, 2, 1, 0));
}

}  // namespace
}  // namespace pushpull
