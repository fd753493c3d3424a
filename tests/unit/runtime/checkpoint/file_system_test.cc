// SPDX-License-Identifier: Apache-2.0
//
// The operations on real folders, and what a save does on a real disk that is full.
#include "runtime/checkpoint/file_system.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "tests/unit/runtime/checkpoint/sample_checkpoint.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class PosixFileSystemTest : public ::testing::Test {
 protected:
  PosixFileSystemTest() {
    std::string name = absl::StrCat(::testing::TempDir(), "/checkpoint_XXXXXX");
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Path(const std::string& name) const { return JoinPath(dir_, name); }

  void Write(const std::string& name, const std::vector<std::byte>& bytes) {
    const auto file = files_.CreateFile(Path(name));
    ASSERT_TRUE(file.ok()) << file.status();
    const std::array<std::span<const std::byte>, 1> buffers{bytes};
    ASSERT_TRUE((*file)->Append(buffers).ok());
    ASSERT_TRUE((*file)->Sync().ok());
  }

  PosixFileSystem files_;
  std::string dir_;
};

TEST_F(PosixFileSystemTest, BuffersAreWrittenAndReadInOrder) {
  const std::vector<std::byte> first(3, std::byte{1});
  const std::vector<std::byte> second(2'000'000, std::byte{2});
  const auto file = files_.CreateFile(Path("file"));
  ASSERT_TRUE(file.ok()) << file.status();
  const std::array<std::span<const std::byte>, 3> out{first, {}, second};
  ASSERT_TRUE((*file)->Append(out).ok());
  ASSERT_TRUE((*file)->Append(out).ok());
  ASSERT_TRUE((*file)->Sync().ok());

  const auto reader = files_.OpenFile(Path("file"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<std::byte> head(2);
  std::vector<std::byte> rest(2'000'000);
  const std::array<std::span<std::byte>, 2> in{head, rest};
  const absl::Status read = (*reader)->ReadAt(first.size() + second.size() + 1, in);

  EXPECT_TRUE(read.ok()) << read;
  EXPECT_EQ((*reader)->num_bytes(), 2 * (first.size() + second.size()));
  EXPECT_EQ(head, std::vector<std::byte>(2, std::byte{1}));
  EXPECT_EQ(rest, second);
}

TEST_F(PosixFileSystemTest, ReadingBeyondTheEndIsDamageAtTheEnd) {
  Write("file", std::vector<std::byte>(10));
  const auto reader = files_.OpenFile(Path("file"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<std::byte> bytes(8);
  const std::array<std::span<std::byte>, 1> buffers{bytes};

  const absl::Status status = (*reader)->ReadAt(5, buffers);

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("file at byte 10"));
}

TEST_F(PosixFileSystemTest, ANewFileLeavesAnUnfinishedOneOfItsNameAlone) {
  const auto zombie = files_.CreateFile(Path("file"));
  ASSERT_TRUE(zombie.ok()) << zombie.status();
  Write("file", std::vector<std::byte>(4));
  const std::vector<std::byte> late(100, std::byte{9});
  const std::array<std::span<const std::byte>, 1> buffers{late};
  ASSERT_TRUE((*zombie)->Append(buffers).ok());

  const auto bytes = ReadWholeFile(files_, Path("file"), 1000);

  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, std::vector<std::byte>(4));
}

TEST_F(PosixFileSystemTest, FoldersAreMadeWithThoseAboveThemAndListedByName) {
  ASSERT_TRUE(files_.CreateFolders(Path("b/c/d")).ok());
  ASSERT_TRUE(files_.CreateFolders(Path("b/c/d")).ok());
  Write("a", {});

  const auto entries = files_.ListFolder(dir_);

  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_THAT(*entries,
              ElementsAre(Field(&FolderEntry::name, "a"), Field(&FolderEntry::name, "b")));
  EXPECT_FALSE((*entries)[0].is_folder);
  EXPECT_TRUE((*entries)[1].is_folder);
  EXPECT_TRUE(files_.SyncFolder(Path("b/c")).ok());
}

TEST_F(PosixFileSystemTest, RenamingReplacesAndRemovingWhatIsGoneIsFine) {
  Write("old", std::vector<std::byte>(1));
  Write("new", std::vector<std::byte>(2));

  ASSERT_TRUE(files_.Rename(Path("new"), Path("old")).ok());

  EXPECT_THAT(*ReadWholeFile(files_, Path("old"), 10), SizeIs(2));
  EXPECT_TRUE(files_.RemoveFile(Path("old")).ok());
  EXPECT_TRUE(files_.RemoveFile(Path("old")).ok());
  EXPECT_TRUE(files_.RemoveFolder(Path("nothing")).ok());
}

TEST_F(PosixFileSystemTest, ErrorsNameCallPathAndReason) {
  Write("file", {});

  EXPECT_EQ(files_.OpenFile(Path("nothing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.ListFolder(Path("nothing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.OpenFile(dir_).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(files_.CreateFolders(Path("file/below")).ok());
  EXPECT_FALSE(files_.SyncFolder(Path("nothing")).ok());
  const absl::Status status = files_.Rename(Path("nothing"), Path("x"));
  EXPECT_EQ(
      std::string(status.message()),
      absl::StrCat("rename ", Path("nothing"), " to ", Path("x"), ": No such file or directory"));
}

TEST_F(PosixFileSystemTest, AFileThatIsLargerThanTheReaderAllowsIsRefused) {
  Write("file", std::vector<std::byte>(11));

  EXPECT_EQ(ReadWholeFile(files_, Path("file"), 10).status().code(), absl::StatusCode::kDataLoss);
}

// What a child process answers with its exit code.
enum Outcome : int {
  kAsPromised = 0,
  kNotFull = 1,
  kWrongStatus = 2,
  kLeftovers = 3,
  kOldGone = 4
};

// A save that does not fit: the status says so, no file stays, the checkpoint of before loads.
Outcome SaveOnFullDisk(const std::string& dir) {
  PosixFileSystem files;
  const SampleOptions large{.step = Step{20}, .num_servers = 1, .is_large = true};
  const absl::Status saved = WriteSample(files, dir, large);
  if (saved.ok()) return kNotFull;
  if (!absl::IsResourceExhausted(saved)) return kWrongStatus;
  const auto left = files.ListFolder(StepFolder(dir, large.step));
  if (!left.ok() || !left->empty()) return kLeftovers;
  const auto loaded = LoadNewestComplete(files, dir, SampleOwner());
  if (!loaded.ok() || loaded->manifest.step != Step{10}) return kOldGone;
  return CompareWithSample(files, loaded->folder, {.step = Step{10}}).empty() ? kAsPromised
                                                                              : kOldGone;
}

// Runs `body` in a process of its own, whose limits and mounts are its own too.
int ExitCodeInChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(PosixFileSystemTest, AFileBeyondItsLimitFailsTheSaveAndNothingElse) {
  ASSERT_TRUE(WriteSample(files_, dir_, {.step = Step{10}}).ok());

  const int outcome = ExitCodeInChild([this]() -> int {
    const rlimit limit{.rlim_cur = 1'000'000, .rlim_max = 1'000'000};
    if (std::signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0) return 99;
    return SaveOnFullDisk(dir_);
  });

  EXPECT_EQ(outcome, kAsPromised);
}

// As root a real disk that is full; without the right to mount one, the case above stands for it.
TEST_F(PosixFileSystemTest, AFullDiskFailsTheSaveAndNothingElse) {
  constexpr int kMayNotMount = 98;

  const int outcome = ExitCodeInChild([this]() -> int {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", dir_.c_str(), "tmpfs", 0, "size=1m") != 0) {
      return kMayNotMount;
    }
    PosixFileSystem files;
    if (!WriteSample(files, dir_, {.step = Step{10}}).ok()) return 97;
    return SaveOnFullDisk(dir_);
  });

  if (outcome == kMayNotMount) GTEST_SKIP() << "no right to mount a tmpfs here";
  EXPECT_EQ(outcome, kAsPromised);
}

}  // namespace
}  // namespace pushpull
