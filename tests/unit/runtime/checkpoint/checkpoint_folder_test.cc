// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint_folder.h"

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
using ::testing::SizeIs;

constexpr char kDir[] = "checkpoints";
// A job of the same name in another namespace.
constexpr SampleOptions kOther{.job_namespace = "lab"};

class CheckpointFolderTest : public ::testing::Test {
 protected:
  std::string ManifestPath(uint64_t step) {
    return JoinPath(StepFolder(kDir, Step{step}), kManifestName);
  }
  static SampleOptions Options(uint64_t step, uint64_t attempt = 7) {
    return {.step = Step{step}, .attempt = attempt, .job_namespace = "home"};
  }
  static CheckpointOwner Owner() { return SampleOwner(Options(1)); }
  void Save(uint64_t step, uint64_t attempt = 7) {
    const absl::Status saved = WriteSample(files_, kDir, Options(step, attempt));
    ASSERT_TRUE(saved.ok()) << saved;
  }
  void SaveAsAnother(uint64_t step) {
    SampleOptions options = kOther;
    options.step = Step{step};
    ASSERT_TRUE(WriteSample(files_, kDir, options).ok());
  }
  // The files, and no manifest.
  void SaveAndDie(uint64_t step, uint64_t attempt = 7) {
    ASSERT_TRUE(WriteSampleFiles(files_, kDir, {.step = Step{step}, .attempt = attempt}).ok());
  }
  void SaveInLaterFormat(uint64_t step) {
    Save(step);
    const std::span<std::byte> bytes = files_.contents(ManifestPath(step));
    StoreNumber(uint16_t{2}, bytes.subspan(8));
    StoreNumber(ChecksumBytes(bytes.first(56)), bytes.subspan(56));
  }
  void Damage(uint64_t step) { files_.contents(ManifestPath(step))[100] ^= std::byte{1}; }

  std::vector<uint64_t> ListedSteps() {
    std::vector<uint64_t> steps;
    const auto list = ListCheckpoints(files_, kDir);
    EXPECT_TRUE(list.ok()) << list.status();
    for (const ListedCheckpoint& listed : *list) steps.push_back(listed.step.value());
    return steps;
  }
  uint64_t LoadedStep() {
    const auto loaded = LoadNewestComplete(files_, kDir, Owner());
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? loaded->manifest.step.value() : 0;
  }

  MemoryFileSystem files_;
};

TEST_F(CheckpointFolderTest, WhatWasSavedByAnyNumberOfServersIsReadBack) {
  for (const uint32_t num_servers : {1U, 3U, 4U, 7U, 20U}) {
    for (const ChunkVersions versions : {ChunkVersions::kOfOneStep, ChunkVersions::kOfEachChunk}) {
      const SampleOptions options{.step = Step{100 + num_servers},
                                  .num_servers = num_servers,
                                  .versions = versions,
                                  .is_large = true};
      MemoryFileSystem files;

      const absl::Status saved = WriteSample(files, kDir, options);

      ASSERT_TRUE(saved.ok()) << saved;
      EXPECT_EQ(CompareWithSample(files, StepFolder(kDir, options.step), options), "");
    }
  }
}

TEST_F(CheckpointFolderTest, TheListSaysWhatIsThereNewestFirst) {
  Save(100);
  Save(300);
  SaveAndDie(200);
  SaveAndDie(400);

  const auto list = ListCheckpoints(files_, kDir);

  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_THAT(*list, SizeIs(4));
  EXPECT_THAT(ListedSteps(), ElementsAre(300, 100, 400, 200));
  EXPECT_TRUE((*list)[0].status.ok());
  EXPECT_EQ((*list)[0].folder, "checkpoints/step-000000000300");
  EXPECT_EQ((*list)[0].owner, Owner());
  EXPECT_EQ((*list)[0].mode, "Sync");
  EXPECT_EQ((*list)[0].num_tensors, 7);
  EXPECT_EQ((*list)[0].num_chunks, 6);
  EXPECT_EQ((*list)[2].status.code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointFolderTest, OtherFilesAndFoldersAreNoCheckpoints) {
  Save(100);
  ASSERT_TRUE(files_.CreateFolders("checkpoints/step-abc").ok());
  ASSERT_TRUE(files_.CreateFolders("checkpoints/step-1").ok());
  ASSERT_TRUE(files_.CreateFile("checkpoints/step-000000000200").ok());

  EXPECT_THAT(ListedSteps(), ElementsAre(100));
}

TEST_F(CheckpointFolderTest, AFolderThatIsNotThereIsNotFound) {
  EXPECT_EQ(ListCheckpoints(files_, "nowhere").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadNewestComplete(files_, "nowhere", Owner()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(CheckpointFolderTest, DamagedOnesAndAttemptsThatDiedArePassedOverAndSaid) {
  Save(100);
  Save(200);
  Damage(200);
  SaveAndDie(300);

  const auto loaded = LoadNewestComplete(files_, kDir, Owner());

  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->manifest.step, Step{100});
  ASSERT_THAT(loaded->skipped, SizeIs(2));
  EXPECT_EQ(loaded->skipped[0].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(loaded->skipped[0].status.message()), HasSubstr(ManifestPath(200)));
  EXPECT_EQ(loaded->skipped[1].status.code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointFolderTest, ACheckpointWithoutOneOfItsFilesIsDamaged) {
  Save(100);
  const std::string gone = files_.paths()[1];
  ASSERT_TRUE(files_.RemoveFile(gone).ok());

  const absl::Status status = ReadManifest(files_, StepFolder(kDir, Step{100})).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(gone));
}

TEST_F(CheckpointFolderTest, ACheckpointWithACutFileIsDamagedWhereItIsCut) {
  Save(100);
  const std::string cut = files_.paths()[1];
  files_.contents(cut).resize(500);

  const absl::Status status = ReadManifest(files_, StepFolder(kDir, Step{100})).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DamageOffset(status), 500);
  EXPECT_THAT(std::string(status.message()), HasSubstr(cut));
}

TEST_F(CheckpointFolderTest, ANewestCheckpointOfALaterFormatBlocksRestore) {
  Save(100);
  SaveInLaterFormat(200);

  const absl::Status status = LoadNewestComplete(files_, kDir, Owner()).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 2"));
}

TEST_F(CheckpointFolderTest, AnOlderCheckpointOfALaterFormatIsIgnored) {
  SaveInLaterFormat(100);
  Save(200);

  EXPECT_EQ(LoadedStep(), 200);
}

TEST_F(CheckpointFolderTest, TheNewestCheckpointIsTheOneWrittenLast) {
  Save(100);
  Save(300);
  Save(200);

  EXPECT_EQ(LoadedStep(), 200);
  ASSERT_TRUE(Prune(files_, kDir, {.job = Owner(), .keep = 2}).ok());
  EXPECT_THAT(ListedSteps(), ElementsAre(200, 300));
}

TEST_F(CheckpointFolderTest, FilesThatAreNotInTheFolderSayThatItIsNotShared) {
  MemoryFileSystem elsewhere;
  const auto summaries = WriteSampleFiles(elsewhere, kDir, {});
  ASSERT_TRUE(summaries.ok()) << summaries.status();
  CheckpointManifest manifest = SampleManifest({});
  ASSERT_TRUE(AddFiles(*summaries, manifest).ok());

  const absl::Status status = WriteManifest(files_, kDir, manifest);

  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("must write to one folder"));
  EXPECT_THAT(files_.paths(), IsEmpty());
}

TEST_F(CheckpointFolderTest, SavingAStepAgainReplacesItAtomically) {
  Save(100, 7);
  SaveAndDie(100, 8);

  EXPECT_EQ(CompareWithSample(files_, StepFolder(kDir, Step{100}), Options(100)), "");
  Save(100, 9);
  ASSERT_TRUE(Prune(files_, kDir, {.job = Owner()}).ok());

  EXPECT_EQ(CompareWithSample(files_, StepFolder(kDir, Step{100}), Options(100)), "");
  EXPECT_THAT(files_.paths(), SizeIs(3));
}

TEST_F(CheckpointFolderTest, PruningKeepsTheNewestCompleteOnes) {
  for (const uint64_t step : {100U, 200U, 300U, 400U, 500U}) Save(step);

  const absl::Status pruned = Prune(files_, kDir, {.job = Owner(), .keep = 2});

  EXPECT_TRUE(pruned.ok()) << pruned;
  EXPECT_THAT(ListedSteps(), ElementsAre(500, 400));
  EXPECT_THAT(files_.paths(), SizeIs(6));
}

TEST_F(CheckpointFolderTest, PruningRemovesAttemptsOnlyWhenTheyAreOver) {
  SaveAndDie(100);
  Save(200);
  SaveAndDie(300);
  SaveAndDie(400);
  SaveAndDie(500);

  ASSERT_TRUE(Prune(files_, kDir, {.job = Owner(), .keep = 2}).ok());
  EXPECT_THAT(ListedSteps(), ElementsAre(200, 500, 400, 300));

  ASSERT_TRUE(Prune(files_, kDir, {.job = Owner(), .keep = 2, .writing = Step{400}}).ok());
  EXPECT_THAT(ListedSteps(), ElementsAre(200, 500, 400));
}

TEST_F(CheckpointFolderTest, PruningLeavesTheLastCompleteOneWhateverItIsTold) {
  Save(100);

  ASSERT_TRUE(Prune(files_, kDir, {.job = Owner(), .keep = 0, .writing = Step{200}}).ok());

  EXPECT_THAT(ListedSteps(), ElementsAre(100));
}

TEST_F(CheckpointFolderTest, PruningLeavesTheStepBeingWrittenAlone) {
  Save(100);
  SaveAndDie(100, 8);
  const std::vector<std::string> before = files_.paths();

  ASSERT_TRUE(Prune(files_, kDir, {.job = Owner(), .writing = Step{100}}).ok());

  EXPECT_EQ(files_.paths(), before);
}

TEST_F(CheckpointFolderTest, PruningTouchesNoCheckpointOfALaterFormat) {
  SaveInLaterFormat(100);
  Save(200);
  Save(300);

  ASSERT_TRUE(Prune(files_, kDir, {.job = Owner(), .keep = 1}).ok());

  EXPECT_THAT(ListedSteps(), ElementsAre(300, 100));
}

TEST_F(CheckpointFolderTest, AnothersNewerCheckpointIsNotLoaded) {
  Save(100);
  SaveAsAnother(200);

  EXPECT_EQ(LoadedStep(), 100);
}

TEST_F(CheckpointFolderTest, AnothersCheckpointsAloneAreNone) {
  SaveAsAnother(200);

  const absl::Status status = LoadNewestComplete(files_, kDir, Owner()).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointFolderTest, PruningNeitherCountsNorRemovesAnothers) {
  SaveAsAnother(100);
  Save(200);
  Save(300);
  SaveAsAnother(400);

  ASSERT_TRUE(Prune(files_, kDir, {.job = Owner(), .keep = 1}).ok());

  EXPECT_THAT(ListedSteps(), ElementsAre(400, 300, 100));
}

TEST_F(CheckpointFolderTest, PruningLeavesAnothersDamagedFilesAlone) {
  SaveAsAnother(100);
  ASSERT_TRUE(files_.RemoveFile(files_.paths()[1]).ok());
  Save(200);

  ASSERT_TRUE(Prune(files_, kDir, {.job = Owner(), .keep = 1}).ok());

  EXPECT_THAT(ListedSteps(), ElementsAre(200, 100));
}

TEST_F(CheckpointFolderTest, AStepThatAnotherHasSavedIsNotReplaced) {
  SaveAsAnother(100);

  const absl::Status saved = WriteSample(files_, kDir, Options(100, 8));

  EXPECT_EQ(saved.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(saved.message()),
              HasSubstr("is a checkpoint of job lab/sample, not of home/sample"));
  EXPECT_EQ(ListCheckpoints(files_, kDir)->front().owner, SampleOwner(kOther));
}

TEST_F(CheckpointFolderTest, AJobOfTheSameNameElsewhereIsAnother) {
  const CheckpointOwner job{.job_namespace = "lab", .job = "mnist"};

  EXPECT_TRUE(IsSameJob(job, {.job_namespace = "lab", .job = "mnist"}));
  EXPECT_FALSE(IsSameJob(job, {.job_namespace = "home", .job = "mnist"}));
  EXPECT_FALSE(IsSameJob(job, {.job_namespace = "lab", .job = "cifar"}));
  EXPECT_TRUE(IsSameJob(job, {.job_namespace = "", .job = "mnist"}));
}

TEST_F(CheckpointFolderTest, AFolderOfAllJobsListsTheirs) {
  for (const char* dir : {"checkpoints/lab/a", "checkpoints/lab/b", "checkpoints/home/a"})
    ASSERT_TRUE(WriteSample(files_, dir, {.step = Step{5}}).ok());
  Save(7);
  ASSERT_TRUE(WriteSample(files_, "checkpoints/lost+found/a", {.step = Step{9}}).ok());
  ASSERT_TRUE(WriteSample(files_, "checkpoints/too/far/down/there", {.step = Step{9}}).ok());

  const auto all = ListCheckpointsBelow(files_, kDir);
  const auto of_one = ListCheckpointsBelow(files_, "checkpoints/lab/b");

  ASSERT_TRUE(all.ok()) << all.status();
  std::vector<std::string> folders;
  for (const ListedCheckpoint& listed : *all) folders.push_back(listed.folder);
  EXPECT_THAT(folders,
              ElementsAre("checkpoints/step-000000000007",
                          "checkpoints/home/a/step-000000000005",
                          "checkpoints/lab/a/step-000000000005",
                          "checkpoints/lab/b/step-000000000005"));
  EXPECT_THAT(*of_one, SizeIs(1));
}

TEST_F(CheckpointFolderTest, RemovingWhatIsNotThereIsFine) {
  Save(100);

  EXPECT_TRUE(RemoveCheckpoint(files_, kDir, Step{50}).ok());
  EXPECT_TRUE(RemoveCheckpoint(files_, kDir, Step{100}).ok());

  EXPECT_THAT(ListedSteps(), IsEmpty());
  EXPECT_THAT(files_.paths(), IsEmpty());
}

}  // namespace
}  // namespace pushpull
