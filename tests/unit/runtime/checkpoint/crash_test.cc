// SPDX-License-Identifier: Apache-2.0
//
// A save that ends at every point at which it can: the process is killed, the power fails, the disk
// is full, the device fails. What was there before, or what was being written, loads, whole.
#include <cstdint>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/verify.h"
#include "tests/fakes/memory_file_system.h"
#include "tests/unit/runtime/checkpoint/sample_checkpoint.h"

namespace pushpull {
namespace {

constexpr char kCrashDir[] = "checkpoints";
constexpr Step kOld{10};
constexpr Step kNew{20};

MemoryFileSystem WithOldCheckpoint() {
  MemoryFileSystem files;
  EXPECT_TRUE(WriteSample(files, kCrashDir, {.step = kOld}).ok());
  return files;
}

// What a coordinator does: save, then prune; after a failed save give its space back.
absl::Status SaveNew(FileSystem& files) {
  absl::Status saved = WriteSample(files, kCrashDir, {.step = kNew});
  if (!saved.ok()) {
    RemoveCheckpoint(files, kCrashDir, kNew).IgnoreError();
    return saved;
  }
  Prune(files, kCrashDir, {.job = SampleOwner(), .keep = 1}).IgnoreError();
  return absl::OkStatus();
}

uint64_t OperationsOfSave() {
  MemoryFileSystem files = WithOldCheckpoint();
  const uint64_t before = files.num_operations();
  EXPECT_TRUE(SaveNew(files).ok());
  return files.num_operations() - before;
}

// The step of the newest complete checkpoint, which is whole; 0 where there is none, or it is not.
uint64_t LoadedStep(FileSystem& files) {
  const absl::StatusOr<LoadedCheckpoint> loaded =
      LoadNewestComplete(files, kCrashDir, SampleOwner());
  if (!loaded.ok()) {
    ADD_FAILURE() << loaded.status();
    return 0;
  }
  // A crash leaves attempts without manifest; a damaged one would be a warning about the disk.
  for (const ListedCheckpoint& skipped : loaded->skipped)
    EXPECT_TRUE(absl::IsNotFound(skipped.status)) << skipped.status;
  const Step step = loaded->manifest.step;
  const std::string difference = CompareWithSample(files, loaded->folder, {.step = step});
  EXPECT_EQ(difference, "") << loaded->folder;
  const absl::StatusOr<VerifyReport> report = VerifyCheckpoint(files, loaded->folder);
  EXPECT_TRUE(report.ok() && report->num_problems == 0) << loaded->folder;
  return difference.empty() ? step.value() : 0;
}

void ExpectSavingGoesOn(FileSystem& files) {
  EXPECT_TRUE(WriteSample(files, kCrashDir, {.step = kNew, .attempt = 8}).ok());
  EXPECT_TRUE(Prune(files, kCrashDir, {.job = SampleOwner(), .keep = 1}).ok());

  EXPECT_EQ(LoadedStep(files), kNew.value());
  const auto list = ListCheckpoints(files, kCrashDir);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->size(), 1);
}

TEST(CrashTest, KilledAtAnyPointOfASaveTheNewestCompleteOneLoads) {
  const uint64_t num_operations = OperationsOfSave();
  ASSERT_GT(num_operations, 20);
  for (uint64_t operation = 0; operation <= num_operations; ++operation) {
    MemoryFileSystem files = WithOldCheckpoint();
    files.StopAt(files.num_operations() + operation);
    const bool was_saved = SaveNew(files).ok();

    MemoryFileSystem found = files.AfterKill();

    const uint64_t step = LoadedStep(found);
    EXPECT_TRUE(step == kNew.value() || (step == kOld.value() && !was_saved)) << operation;
    ExpectSavingGoesOn(found);
  }
}

TEST(CrashTest, TheNewestCompleteOneLoadsAfterAnyPowerLoss) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 chance(seed);
  const uint64_t num_operations = OperationsOfSave();
  for (uint64_t operation = 0; operation <= num_operations; ++operation) {
    MemoryFileSystem files = WithOldCheckpoint();
    files.StopAt(files.num_operations() + operation);
    const bool was_saved = SaveNew(files).ok();
    for (int i = 0; i < 20; ++i) {
      MemoryFileSystem found = files.AfterPowerLoss(chance);

      const uint64_t step = LoadedStep(found);
      EXPECT_TRUE(step == kNew.value() || (step == kOld.value() && !was_saved)) << operation;
      ExpectSavingGoesOn(found);
    }
  }
}

TEST(CrashTest, AFailureAtAnyPointLeavesNothingComplete) {
  const absl::Status failure = absl::UnavailableError("write: Input/output error");
  const uint64_t num_operations = OperationsOfSave();
  for (uint64_t operation = 0; operation < num_operations; ++operation) {
    MemoryFileSystem files = WithOldCheckpoint();
    files.FailAt(files.num_operations() + operation, failure);

    const absl::Status saved = SaveNew(files);

    EXPECT_TRUE(saved.ok() || saved == failure) << operation << ": " << saved;
    EXPECT_EQ(LoadedStep(files), saved.ok() ? kNew.value() : kOld.value()) << operation;
    ExpectSavingGoesOn(files);
  }
}

TEST(CrashTest, AFullDiskFailsTheSaveAndFreesItsSpace) {
  MemoryFileSystem whole = WithOldCheckpoint();
  const uint64_t old_bytes = whole.num_bytes();
  ASSERT_TRUE(WriteSample(whole, kCrashDir, {.step = kNew}).ok());
  const uint64_t new_bytes = whole.num_bytes() - old_bytes;
  for (uint64_t num_free = 0; num_free < new_bytes; num_free += 7) {
    MemoryFileSystem files = WithOldCheckpoint();
    files.LimitBytes(old_bytes + num_free);

    const absl::Status saved = SaveNew(files);

    ASSERT_EQ(saved.code(), absl::StatusCode::kResourceExhausted) << num_free;
    ASSERT_EQ(files.num_bytes(), old_bytes) << num_free;
    ASSERT_EQ(LoadedStep(files), kOld.value()) << num_free;
  }
}

}  // namespace
}  // namespace pushpull
