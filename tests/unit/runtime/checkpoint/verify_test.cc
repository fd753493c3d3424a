// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/verify.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "tests/fakes/memory_file_system.h"
#include "tests/unit/runtime/checkpoint/sample_checkpoint.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class VerifyTest : public ::testing::Test {
 protected:
  VerifyTest() { EXPECT_TRUE(WriteSample(files_, "dir", {}).ok()); }

  VerifyReport Verify() {
    absl::StatusOr<VerifyReport> report = VerifyCheckpoint(files_, folder_);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : VerifyReport{};
  }

  MemoryFileSystem files_;
  const std::string folder_ = StepFolder("dir", Step{42});
};

TEST_F(VerifyTest, AWholeCheckpointHasNoProblems) {
  const VerifyReport report = Verify();

  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.step, Step{42});
  EXPECT_EQ(report.num_files, 2);
  EXPECT_EQ(report.num_records, 6);
  EXPECT_GT(report.bytes, 0);
}

TEST_F(VerifyTest, AnyFlippedBitIsFoundWithFileAndOffset) {
  for (const std::string& path : files_.paths()) {
    const std::vector<std::byte> good = files_.contents(path);
    for (size_t byte = 0; byte < good.size(); ++byte) {
      files_.contents(path)[byte] ^= static_cast<std::byte>(1 << (byte % 8));

      const VerifyReport report = Verify();

      ASSERT_THAT(report.problems, SizeIs(1)) << path << " " << byte;
      ASSERT_EQ(report.problems[0].file, path) << byte;
      ASSERT_TRUE(report.problems[0].offset.has_value()) << report.problems[0].text;
      ASSERT_LE(*report.problems[0].offset, byte) << report.problems[0].text;
      ASSERT_THAT(report.problems[0].text, HasSubstr(path));
      files_.contents(path) = good;
    }
  }
}

TEST_F(VerifyTest, AFileCutAnywhereIsFound) {
  for (const std::string& path : files_.paths()) {
    const std::vector<std::byte> good = files_.contents(path);
    for (size_t length = 0; length < good.size(); ++length) {
      files_.contents(path).resize(length);

      const VerifyReport report = Verify();

      ASSERT_GE(report.num_problems, 1) << path << " " << length;
      ASSERT_EQ(report.problems[0].file, path) << length;
      files_.contents(path) = good;
    }
  }
}

TEST_F(VerifyTest, EachDamagedRecordOfAFileIsFound) {
  const std::string path = files_.paths()[1];
  std::vector<std::byte>& bytes = files_.contents(path);
  const auto manifest = ReadManifest(files_, folder_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  for (const StoredChunk& chunk : manifest->chunks) {
    if (chunk.file == 0) bytes[chunk.place.offset] ^= std::byte{1};
  }

  const VerifyReport report = Verify();

  EXPECT_EQ(report.num_problems, 3);
}

TEST_F(VerifyTest, AFileThatIsNotThereIsAProblemNotAnError) {
  const std::string gone = files_.paths()[1];
  ASSERT_TRUE(files_.RemoveFile(gone).ok());

  const VerifyReport report = Verify();

  ASSERT_THAT(report.problems, SizeIs(1));
  EXPECT_EQ(report.problems[0].file, gone);
}

TEST_F(VerifyTest, AFileOfAnotherSaveWithTheSameNameIsFound) {
  MemoryFileSystem other;
  ASSERT_TRUE(WriteSample(other, "dir", {.step = Step{41}}).ok());
  const std::string path = files_.paths()[1];
  files_.contents(path) = other.contents(other.paths()[1]);

  const VerifyReport report = Verify();

  EXPECT_GE(report.num_problems, 1);
  EXPECT_THAT(report.problems[0].text, HasSubstr("of step 41"));
}

TEST_F(VerifyTest, AFolderWithoutManifestIsNotFound) {
  EXPECT_EQ(VerifyCheckpoint(files_, "nowhere").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace pushpull
