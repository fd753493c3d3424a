// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/checkpoint_keeper.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/wire_bytes.h"
#include "tests/fakes/memory_file_system.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

// Runs what is posted at once.
class ImmediateExecutor final : public Executor {
 public:
  void Post(std::function<void()> task) override { task(); }
  TimerId RunAt(SteadyTime, std::function<void()>) override { return 0; }
  void Cancel(TimerId) override {}
  SteadyTime Now() const override { return {}; }
};

const CheckpointPlace kPlace{
    .root = "/ckpt", .folder = "/ckpt/lab/j", .job = {.job_namespace = "lab", .job = "j"}};

auto Says(const char* text) {
  return Field(&Announce::text, HasSubstr(text));
}

class CheckpointKeeperTest : public testing::Test {
 protected:
  // A file of one chunk of four values, and what its manifest begins with.
  SaveManifest Files(Step step,
                     uint64_t attempt,
                     const CheckpointOwner& owner = kPlace.job,
                     const std::string& dir = kPlace.folder) {
    SaveManifest save{.attempt = attempt,
                      .folder = dir,
                      .keep = 2,
                      .manifest = {.owner = owner, .step = step, .mode = "Sync"},
                      .files = {}};
    TensorSpec tensor{.name = "w", .dims = {4}};
    tensor.optimizer.kind = OptimizerKind::kSgd;
    tensor.optimizer.learning_rate = 0.1;
    save.manifest.tensors.push_back(tensor);
    auto file = ChunkFileWriter::Create(files_, dir, {.step = step, .attempt = attempt});
    EXPECT_TRUE(file.ok()) << file.status();
    const std::array<std::byte, 16> value{};
    EXPECT_TRUE((*file)->Append({.version = step}, value, {}).ok());
    save.files.push_back((*file)->Finish().value());
    return save;
  }
  absl::Status Save(Step step, uint64_t attempt) {
    absl::Status result;
    keeper_.Save(Files(step, attempt),
                 [&](const absl::Status& written, const absl::Status&) { result = written; });
    return result;
  }
  // What the version before wrote: without a namespace, and straight into the folder of all.
  void SaveBefore(Step step, const std::string& job) {
    SaveManifest save = Files(step, step.value(), {.job_namespace = "", .job = job}, kPlace.root);
    keeper_.Save(std::move(save), [](const absl::Status& written, const absl::Status&) {
      EXPECT_TRUE(written.ok()) << written;
    });
  }
  RestoreChoice Find(const std::string& restore_from) {
    absl::StatusOr<RestoreChoice> choice = FindRestore(files_, kPlace, restore_from);
    EXPECT_TRUE(choice.ok()) << choice.status();
    return choice.ok() ? *std::move(choice) : RestoreChoice{};
  }
  static std::string Manifest(Step step, const std::string& dir = kPlace.folder) {
    return JoinPath(StepFolder(dir, step), kManifestName);
  }

  ImmediateExecutor disk_;
  MemoryFileSystem files_;
  CheckpointKeeper keeper_{disk_, files_};
};

TEST_F(CheckpointKeeperTest, WhatWasSavedLastIsWhereTheNextJobBegins) {
  ASSERT_TRUE(Save(Step{5}, 1).ok());
  ASSERT_TRUE(Save(Step{3}, 2).ok());

  const auto found = FindRestore(files_, kPlace, "latest");

  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->checkpoint->manifest.step, Step{3});
  EXPECT_GT(found->checkpoint->manifest.written_at, 0);
  EXPECT_THAT(found->said, IsEmpty());
}

TEST_F(CheckpointKeeperTest, AnOlderOneIsFoundByItsNameOrPath) {
  ASSERT_TRUE(Save(Step{5}, 1).ok());
  ASSERT_TRUE(Save(Step{7}, 2).ok());

  const auto by_name = FindRestore(files_, kPlace, "step-000000000005");
  const auto by_path = FindRestore(files_, kPlace, "/ckpt/lab/j/step-000000000005");

  EXPECT_EQ(by_name->checkpoint->manifest.step, Step{5});
  EXPECT_EQ(by_path->checkpoint->manifest.step, Step{5});
}

TEST_F(CheckpointKeeperTest, WithoutAnyTheJobBeginsAnew) {
  const auto found = FindRestore(files_, kPlace, "latest");

  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->checkpoint.has_value());
  EXPECT_THAT(found->said, IsEmpty());
}

TEST_F(CheckpointKeeperTest, OneThatIsNamedMustBeThere) {
  EXPECT_TRUE(absl::IsNotFound(FindRestore(files_, kPlace, "step-000000000005").status()));
}

TEST_F(CheckpointKeeperTest, DamagedCheckpointsDoNotStartTheJobAnew) {
  ASSERT_TRUE(Save(Step{5}, 1).ok());
  files_.contents(Manifest(Step{5})).back() ^= std::byte{1};

  const auto found = FindRestore(files_, kPlace, "latest");

  EXPECT_TRUE(absl::IsDataLoss(found.status())) << found.status();
}

TEST_F(CheckpointKeeperTest, ALaterFormatIsRefusedAndNotPassedOver) {
  ASSERT_TRUE(Save(Step{5}, 1).ok());
  ASSERT_TRUE(Save(Step{6}, 2).ok());
  const std::span<std::byte> header(files_.contents(Manifest(Step{6})).data(), 64);
  StoreNumber(uint16_t{2}, header.subspan(8));
  StoreNumber(ChecksumBytes(header.first(56)), header.subspan(56));

  const auto found = FindRestore(files_, kPlace, "latest");

  EXPECT_TRUE(absl::IsUnimplemented(found.status())) << found.status();
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("format version 2"));
}

TEST_F(CheckpointKeeperTest, TheOldestGo) {
  ASSERT_TRUE(Save(Step{5}, 1).ok());
  ASSERT_TRUE(Save(Step{6}, 2).ok());

  ASSERT_TRUE(Save(Step{7}, 3).ok());

  EXPECT_FALSE(files_.Exists(Manifest(Step{5})));
  EXPECT_TRUE(files_.Exists(Manifest(Step{6})));
}

TEST_F(CheckpointKeeperTest, WhatAFailedAttemptLeavesIsCleared) {
  Files(Step{9}, 4);
  bool is_done = false;

  keeper_.Clear({.attempt = 4, .folder = kPlace.folder, .step = Step{9}}, [&] { is_done = true; });

  EXPECT_TRUE(is_done);
  EXPECT_THAT(files_.paths(), testing::IsEmpty());
}

TEST_F(CheckpointKeeperTest, AFailedAttemptKeepsACompleteCheckpoint) {
  ASSERT_TRUE(Save(Step{9}, 3).ok());
  Files(Step{9}, 4);

  keeper_.Clear({.attempt = 4, .folder = kPlace.folder, .step = Step{9}}, [] {});

  EXPECT_TRUE(FindRestore(files_, kPlace, "latest")->checkpoint.has_value());
}

TEST_F(CheckpointKeeperTest, AnothersInTheJobsFolderIsPassedOverAndSaid) {
  ASSERT_TRUE(Save(Step{5}, 1).ok());
  keeper_.Save(Files(Step{9}, 2, {.job_namespace = "lab", .job = "k"}), [](auto&&...) {});

  const RestoreChoice found = Find("latest");

  ASSERT_TRUE(found.checkpoint.has_value());
  EXPECT_EQ(found.checkpoint->manifest.step, Step{5});
  EXPECT_THAT(found.said, ElementsAre(Says("1 checkpoint of another job is passed over")));
  EXPECT_THAT(found.said, ElementsAre(Says("of job lab/k")));
}

TEST_F(CheckpointKeeperTest, SavingRemovesNoCheckpointOfAnother) {
  keeper_.Save(Files(Step{1}, 1, {.job_namespace = "lab", .job = "k"}), [](auto&&...) {});

  for (const uint64_t step : {5U, 6U, 7U}) ASSERT_TRUE(Save(Step{step}, step).ok());

  EXPECT_TRUE(files_.Exists(Manifest(Step{1})));
  EXPECT_FALSE(files_.Exists(Manifest(Step{5})));
}

TEST_F(CheckpointKeeperTest, TheVersionBeforeIsContinuedAndLeftAlone) {
  SaveBefore(Step{5}, "j");
  SaveBefore(Step{9}, "k");

  const RestoreChoice found = Find("latest");
  for (const uint64_t step : {6U, 7U, 8U}) ASSERT_TRUE(Save(Step{step}, step).ok());

  ASSERT_TRUE(found.checkpoint.has_value());
  EXPECT_EQ(found.checkpoint->folder, "/ckpt/step-000000000005");
  EXPECT_THAT(found.said, ElementsAre(Says("version before, /ckpt/step-000000000005")));
  EXPECT_TRUE(files_.Exists(Manifest(Step{5}, "/ckpt")));
  EXPECT_EQ(Find("latest").checkpoint->manifest.step, Step{8});
}

TEST_F(CheckpointKeeperTest, OthersOfTheVersionBeforeDoNotStartTheJob) {
  SaveBefore(Step{9}, "k");
  SaveBefore(Step{8}, "l");

  const RestoreChoice found = Find("latest");

  EXPECT_FALSE(found.checkpoint.has_value());
  EXPECT_THAT(found.said, ElementsAre(Says("/ckpt: 2 checkpoints of other jobs are passed over")));
}

TEST_F(CheckpointKeeperTest, DamageOfTheVersionBeforeDoesNotStartTheJobAnew) {
  SaveBefore(Step{5}, "j");
  SaveBefore(Step{9}, "k");
  files_.contents(Manifest(Step{5}, "/ckpt")).back() ^= std::byte{1};

  const RestoreChoice beside_others = Find("latest");
  ASSERT_TRUE(RemoveCheckpoint(files_, "/ckpt", Step{9}).ok());
  const absl::Status alone = FindRestore(files_, kPlace, "latest").status();

  EXPECT_TRUE(absl::IsDataLoss(alone)) << alone;
  EXPECT_FALSE(beside_others.checkpoint.has_value());
  EXPECT_THAT(beside_others.said,
              ElementsAre(Field(&Announce::is_problem, true), Says("1 checkpoint of another job")));
}

TEST_F(CheckpointKeeperTest, ANameIsLookedUpAsTheVersionBeforeDid) {
  SaveBefore(Step{5}, "j");

  EXPECT_EQ(Find("step-000000000005").checkpoint->folder, "/ckpt/step-000000000005");
}

TEST_F(CheckpointKeeperTest, AnothersCheckpointNeedsItsPath) {
  SaveBefore(Step{5}, "k");
  keeper_.Save(Files(Step{6}, 6, {.job_namespace = "lab", .job = "k"}, "/ckpt/lab/k"),
               [](auto&&...) {});

  const absl::Status by_name = FindRestore(files_, kPlace, "step-000000000005").status();
  const RestoreChoice by_path = Find("/ckpt/lab/k/step-000000000006");
  const RestoreChoice in_root = Find("lab/k/step-000000000006");

  EXPECT_TRUE(absl::IsInvalidArgument(by_name)) << by_name;
  EXPECT_THAT(std::string(by_name.message()), HasSubstr("of job k, not of lab/j"));
  for (const RestoreChoice& choice : {by_path, in_root}) {
    EXPECT_EQ(choice.checkpoint->folder, "/ckpt/lab/k/step-000000000006");
    EXPECT_THAT(choice.said, ElementsAre(Says("checkpoint of job lab/k, step 6: /ckpt/lab/k/")));
  }
}

TEST_F(CheckpointKeeperTest, ANameDoesNotLeadOutOfTheFolder) {
  for (const char* name : {"../k/step-000000000005", "..", "lab/../../x"}) {
    const absl::Status status = FindRestore(files_, kPlace, name).status();

    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << ": " << status;
  }
}

}  // namespace
}  // namespace pushpull
