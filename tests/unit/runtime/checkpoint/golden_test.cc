// SPDX-License-Identifier: Apache-2.0
//
// tests/data/checkpoints/v1 was written by version 1 of the format. It must be readable for ever:
// when a test here fails, the code is wrong, not the files. A later version adds a folder of its
// own.
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/verify.h"
#include "tests/unit/runtime/checkpoint/sample_checkpoint.h"

namespace pushpull {
namespace {

constexpr char kGolden[] = PUSHPULL_TEST_DATA "/checkpoints/v1";
constexpr SampleOptions kSync{.step = Step{42}};
constexpr SampleOptions kAsync{.step = Step{43}, .versions = ChunkVersions::kOfEachChunk};

TEST(GoldenTest, CheckpointsOfVersion1AreReadable) {
  PosixFileSystem files;
  for (const SampleOptions& options : {kSync, kAsync}) {
    const std::string folder = StepFolder(kGolden, options.step);
    const absl::StatusOr<VerifyReport> report = VerifyCheckpoint(files, folder);

    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->num_problems, 0) << report->problems.front().text;
    EXPECT_EQ(CompareWithSample(files, folder, options), "");
  }
}

TEST(GoldenTest, TheNewestOfThemIsFound) {
  PosixFileSystem files;

  const absl::StatusOr<LoadedCheckpoint> loaded = LoadNewestComplete(files, kGolden, SampleOwner());

  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->manifest.step, kAsync.step);
}

TEST(GoldenTest, WritingThemAgainGivesTheSameBytes) {
  PosixFileSystem files;
  std::string dir = absl::StrCat(::testing::TempDir(), "/golden_XXXXXX");
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  for (const SampleOptions& options : {kSync, kAsync})
    ASSERT_TRUE(WriteSample(files, dir, options).ok());

  for (const SampleOptions& options : {kSync, kAsync}) {
    const auto entries = files.ListFolder(StepFolder(dir, options.step));
    ASSERT_TRUE(entries.ok()) << entries.status();
    EXPECT_EQ(entries->size(), 3);
    for (const FolderEntry& entry : *entries) {
      const auto fresh =
          ReadWholeFile(files, JoinPath(StepFolder(dir, options.step), entry.name), 1 << 20);
      const auto golden =
          ReadWholeFile(files, JoinPath(StepFolder(kGolden, options.step), entry.name), 1 << 20);
      ASSERT_TRUE(golden.ok()) << golden.status() << "; fresh files are in " << dir;
      EXPECT_EQ(*fresh, *golden) << entry.name;
    }
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace pushpull
