// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/checkpoint_keeper.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/wire_bytes.h"
#include "tests/fakes/memory_file_system.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// Runs what is posted at once.
class ImmediateExecutor final : public Executor {
 public:
  void Post(std::function<void()> task) override { task(); }
  TimerId RunAt(SteadyTime, std::function<void()>) override { return 0; }
  void Cancel(TimerId) override {}
  SteadyTime Now() const override { return {}; }
};

class CheckpointKeeperTest : public testing::Test {
 protected:
  // A file of one chunk of four values, and what its manifest begins with.
  SaveManifest Files(Step step, uint64_t attempt) {
    SaveManifest save{.attempt = attempt,
                      .folder = "/ckpt",
                      .keep = 2,
                      .manifest = {.job = "j", .step = step, .mode = "Sync"},
                      .files = {}};
    TensorSpec tensor{.name = "w", .dims = {4}};
    tensor.optimizer.kind = OptimizerKind::kSgd;
    tensor.optimizer.learning_rate = 0.1;
    save.manifest.tensors.push_back(tensor);
    auto file = ChunkFileWriter::Create(files_, "/ckpt", {.step = step, .attempt = attempt});
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
  std::string Manifest(Step step) const {
    return JoinPath(StepFolder("/ckpt", step), kManifestName);
  }

  ImmediateExecutor disk_;
  MemoryFileSystem files_;
  CheckpointKeeper keeper_{disk_, files_};
};

TEST_F(CheckpointKeeperTest, WhatWasSavedLastIsWhereTheNextJobBegins) {
  ASSERT_TRUE(Save(Step{5}, 1).ok());
  ASSERT_TRUE(Save(Step{3}, 2).ok());

  const auto found = FindRestore(files_, "/ckpt", "latest");

  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->manifest.step, Step{3});
  EXPECT_GT((*found)->manifest.written_at, 0);
}

TEST_F(CheckpointKeeperTest, AnOlderOneIsFoundByItsNameOrPath) {
  ASSERT_TRUE(Save(Step{5}, 1).ok());
  ASSERT_TRUE(Save(Step{7}, 2).ok());

  const auto by_name = FindRestore(files_, "/ckpt", "step-000000000005");
  const auto by_path = FindRestore(files_, "/elsewhere", "/ckpt/step-000000000005");

  EXPECT_EQ((*by_name)->manifest.step, Step{5});
  EXPECT_EQ((*by_path)->manifest.step, Step{5});
}

TEST_F(CheckpointKeeperTest, WithoutAnyTheJobBeginsAnew) {
  const auto found = FindRestore(files_, "/ckpt", "latest");

  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->has_value());
}

TEST_F(CheckpointKeeperTest, OneThatIsNamedMustBeThere) {
  EXPECT_TRUE(absl::IsNotFound(FindRestore(files_, "/ckpt", "step-000000000005").status()));
}

TEST_F(CheckpointKeeperTest, DamagedCheckpointsDoNotStartTheJobAnew) {
  ASSERT_TRUE(Save(Step{5}, 1).ok());
  files_.contents(Manifest(Step{5})).back() ^= std::byte{1};

  const auto found = FindRestore(files_, "/ckpt", "latest");

  EXPECT_TRUE(absl::IsDataLoss(found.status())) << found.status();
}

TEST_F(CheckpointKeeperTest, ALaterFormatIsRefusedAndNotPassedOver) {
  ASSERT_TRUE(Save(Step{5}, 1).ok());
  ASSERT_TRUE(Save(Step{6}, 2).ok());
  const std::span<std::byte> header(files_.contents(Manifest(Step{6})).data(), 64);
  StoreNumber(uint16_t{2}, header.subspan(8));
  StoreNumber(ChecksumBytes(header.first(56)), header.subspan(56));

  const auto found = FindRestore(files_, "/ckpt", "latest");

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

  keeper_.Clear({.attempt = 4, .folder = "/ckpt", .step = Step{9}}, [&] { is_done = true; });

  EXPECT_TRUE(is_done);
  EXPECT_THAT(files_.paths(), testing::IsEmpty());
}

TEST_F(CheckpointKeeperTest, AFailedAttemptKeepsACompleteCheckpoint) {
  ASSERT_TRUE(Save(Step{9}, 3).ok());
  Files(Step{9}, 4);

  keeper_.Clear({.attempt = 4, .folder = "/ckpt", .step = Step{9}}, [] {});

  EXPECT_TRUE(FindRestore(files_, "/ckpt", "latest").value().has_value());
}

}  // namespace
}  // namespace pushpull
