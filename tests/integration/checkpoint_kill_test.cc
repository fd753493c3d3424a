// SPDX-License-Identifier: Apache-2.0
//
// A process that saves one checkpoint after the other on a real file system, killed with SIGKILL a
// hundred times. tests/unit/runtime/checkpoint/crash_test.cc ends a save at every operation; here
// the operating system does it, inside of them too.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

#include "runtime/base/file_descriptor.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/verify.h"
#include "tests/fakes/seeds.h"
#include "tests/unit/runtime/checkpoint/sample_checkpoint.h"

namespace pushpull {
namespace {

constexpr int kKills = 100 / static_cast<int>(kSeedStride);
constexpr int kMarksMax = 90;  // about three saves

// What the saving process tells over the pipe.
constexpr char kOperation = 'o';
constexpr char kSaved = 's';

// Tells after every operation that it was done.
class TellingFileSystem final : public FileSystem {
 public:
  explicit TellingFileSystem(int pipe) : pipe_(pipe) {}

  void Tell(char mark) const {
    if (write(pipe_, &mark, 1) != 1) _exit(1);
  }
  absl::Status Told(const absl::Status& status) const {
    Tell(kOperation);
    return status;
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) override {
    return files_.OpenFile(path);
  }
  absl::Status CreateFolders(const std::string& path) override {
    return Told(files_.CreateFolders(path));
  }
  absl::Status SyncFolder(const std::string& path) override {
    return Told(files_.SyncFolder(path));
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Told(files_.Rename(from, to));
  }
  absl::Status RemoveFile(const std::string& path) override {
    return Told(files_.RemoveFile(path));
  }
  absl::Status RemoveFolder(const std::string& path) override {
    return Told(files_.RemoveFolder(path));
  }
  absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& path) override {
    return files_.ListFolder(path);
  }

 private:
  const int pipe_;
  PosixFileSystem files_;
};

class TellingFile final : public WritableFile {
 public:
  TellingFile(const TellingFileSystem& files, std::unique_ptr<WritableFile> file)
      : files_(files), file_(std::move(file)) {}
  absl::Status Append(WriteBuffers buffers) override { return files_.Told(file_->Append(buffers)); }
  absl::Status Sync() override { return files_.Told(file_->Sync()); }

 private:
  const TellingFileSystem& files_;
  const std::unique_ptr<WritableFile> file_;
};

absl::StatusOr<std::unique_ptr<WritableFile>> TellingFileSystem::CreateFile(
    const std::string& path) {
  auto file = files_.CreateFile(path);
  Tell(kOperation);
  if (!file.ok()) return file.status();
  return std::make_unique<TellingFile>(*this, *std::move(file));
}

// Saves step after step until it is killed.
[[noreturn]] void SaveForEver(const std::string& dir, uint64_t first_step, int pipe) {
  TellingFileSystem files(pipe);
  for (uint64_t step = first_step;; ++step) {
    if (!WriteSample(files, dir, {.step = Step{step}, .is_large = true}).ok()) _exit(1);
    files.Tell(kSaved);
    if (!Prune(files, dir, {.job = SampleOwner(), .keep = 2}).ok()) _exit(1);
  }
}

// Kills such a process after `num_marks` marks. Returns how many saves it had completed at least.
uint64_t SaveAndKill(const std::string& dir, uint64_t first_step, int num_marks) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  const pid_t child = fork();
  if (child == 0) SaveForEver(dir, first_step, writing.get());
  writing.Reset();
  uint64_t num_saved = 0;
  for (int i = 0; i < num_marks; ++i) {
    char mark = 0;
    EXPECT_EQ(read(reading.get(), &mark, 1), 1) << "the saving process failed";
    if (mark == kSaved) ++num_saved;
  }
  EXPECT_EQ(kill(child, SIGKILL), 0);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  return num_saved;
}

TEST(CheckpointKillTest, AfterEachOfAHundredKillsTheNewestCompleteOneLoads) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 chance(seed);
  std::string dir = absl::StrCat(::testing::TempDir(), "/checkpoint_kill_XXXXXX");
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  PosixFileSystem files;
  ASSERT_TRUE(WriteSample(files, dir, {.step = Step{1}, .is_large = true}).ok());
  uint64_t step = 1;
  for (int i = 0; i < kKills; ++i) {
    const uint64_t num_saved =
        SaveAndKill(dir, step + 1, 1 + static_cast<int>(chance() % kMarksMax));

    const auto loaded = LoadNewestComplete(files, dir, SampleOwner());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const Step newest = loaded->manifest.step;
    ASSERT_GE(newest.value(), step + num_saved) << i;
    ASSERT_EQ(CompareWithSample(files, loaded->folder, {.step = newest, .is_large = true}), "");
    const auto report = VerifyCheckpoint(files, loaded->folder);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->num_problems, 0) << i;
    step = newest.value();
  }
  EXPECT_GT(step, kKills / 2);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace pushpull
