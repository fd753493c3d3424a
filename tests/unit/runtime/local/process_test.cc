// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/local/process_recorder.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ChildProcessTest : public ::testing::Test {
 protected:
  void TearDown() override {
    RunOn(loop_, [this] { process_.reset(); });
  }

  absl::Status Start(ProcessSpec spec) {
    absl::Status status;
    RunOn(loop_, [&] {
      absl::StatusOr<std::unique_ptr<ChildProcess>> process =
          ChildProcess::Start(spec, loop_, recorder_.Events());
      status = process.status();
      if (process.ok()) process_ = *std::move(process);
    });
    return status;
  }

  // `script` is for /bin/sh.
  void StartShell(const std::string& script, bool reports_ready = false) {
    // The shell takes what follows the script as $0, $1, ...
    const absl::Status status =
        Start({.name = "worker-0",
               .command = {"/bin/sh", "-c", script, "sh"},
               .environment = {{"PATH", "/usr/bin:/bin"}, {"COLOUR", "blue"}},
               .reports_ready = reports_ready});
    ASSERT_TRUE(status.ok()) << status;
  }

  ProcessRecorder recorder_;
  EventLoop loop_{"test"};
  std::unique_ptr<ChildProcess> process_;
};

TEST_F(ChildProcessTest, HandsOnItsLinesInOrderAndThenItsEnd) {
  StartShell("echo one; echo two >&2; printf three; exit 7");

  const ProcessEnd end = recorder_.AwaitEnd();

  EXPECT_EQ(end.exit_code, 7);
  EXPECT_EQ(end.signal, 0);
  EXPECT_THAT(recorder_.lines(), ElementsAre("one", "two", "three"));
}

TEST_F(ChildProcessTest, TellsTheSignalThatEndedIt) {
  StartShell("kill -KILL $$");

  const ProcessEnd end = recorder_.AwaitEnd();

  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_EQ(ToString(end), "was killed by signal 9");
}

TEST_F(ChildProcessTest, HasOnlyTheGivenEnvironmentAndNoOtherDescriptors) {
  const FileDescriptor inherited(open("/dev/null", O_RDONLY));  // without O_CLOEXEC
  StartShell("echo $COLOUR; for fd in /proc/self/fd/*; do echo ${fd##*/}; done; env | wc -l");
  recorder_.AwaitEnd();

  // PWD is the shell's own. 3 is the folder that the shell lists.
  EXPECT_THAT(recorder_.lines(), ElementsAre("blue", "0", "1", "2", "3", "3"));
}

TEST_F(ChildProcessTest, ALineWithoutEndComesInPieces) {
  StartShell("head -c 100000 /dev/zero | tr '\\0' x");
  recorder_.AwaitEnd();

  size_t bytes = 0;
  for (const std::string& line : recorder_.lines()) {
    EXPECT_LE(line.size(), 16u * 1024);
    bytes += line.size();
  }
  EXPECT_EQ(bytes, 100000u);
}

TEST_F(ChildProcessTest, AProgressBarIsSeenWhileItsLineIsUnfinished) {
  StartShell("printf '\\rbar 1\\rbar 2'; exec sleep 1000");

  EXPECT_EQ(recorder_.AwaitLine("bar"), "bar 2");
}

TEST_F(ChildProcessTest, LinesAreAsATerminalShowsThem) {
  StartShell(
      "printf 'windows\\r\\n\\r\\nbar 1\\rbar 2\\r\\n'; printf '\\rbar 3\\r     "
      "\\rmessage\\n\\rend\\r'");
  recorder_.AwaitEnd();

  EXPECT_THAT(recorder_.lines(), ElementsAre("windows", "", "bar 2", "message", "end"));
}

TEST_F(ChildProcessTest, TheEndOfAPartIsNoLineOfItsOwn) {
  StartShell(
      "trap 'printf \"\\n\\nend\\n\"; exit' USR1; printf 'part: '; "
      "while :; do sleep 1000 & wait; done");
  EXPECT_EQ(recorder_.AwaitLine("part"), "part: ");

  RunOn(loop_, [this] { process_->Signal(SIGUSR1); });
  recorder_.AwaitEnd();

  EXPECT_THAT(recorder_.lines(), ElementsAre("part: ", "", "end"));
}

TEST_F(ChildProcessTest, BytesThatAreNoTextArePassedOn) {
  StartShell("head -c 2000000 /dev/zero | tr '\\0' x; printf '\\nlatin-1: \\351\\377\\000 end\\n'");
  recorder_.AwaitEnd();

  EXPECT_EQ(recorder_.lines().back(), std::string("latin-1: \xe9\xff\0 end", 16));
}

TEST_F(ChildProcessTest, AFloodOfOutputLeavesTheLoopToOthers) {
  StartShell("yes");
  recorder_.AwaitLine("");

  RunOn(loop_, [this] { process_->KillGroup(); });  // gets its turn

  EXPECT_EQ(recorder_.AwaitEnd().signal, SIGKILL);
}

TEST_F(ChildProcessTest, ReportsWhatWasWrittenToTheReadyDescriptor) {
  // Not `>&$2`: dash takes numbers of one digit only.
  StartShell("echo '{\"data\":1}' >/proc/self/fd/$2; cat", /*reports_ready=*/true);

  EXPECT_EQ(recorder_.AwaitReady(), "{\"data\":1}");
  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0);  // its standard input is empty
}

TEST_F(ChildProcessTest, WhatItStartedDiesWithIt) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // orphans become this process's children
  StartShell("sleep 1000 & echo $!");
  recorder_.AwaitEnd();

  int status = 0;
  const pid_t orphan = std::stoi(recorder_.AwaitLine(""));
  EXPECT_EQ(waitpid(orphan, &status, 0), orphan);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

TEST_F(ChildProcessTest, ItsGroupIsKnownBeforeItBegins) {
  StartShell("echo $$");
  recorder_.AwaitEnd();

  EXPECT_THAT(recorder_.lines(), ElementsAre(absl::StrCat(recorder_.group())));
}

TEST_F(ChildProcessTest, AProgramThatIsNotThereIsNamed) {
  const absl::Status missing = Start({.name = "worker-0", .command = {"/no/such/program"}});
  const absl::Status folder = Start({.name = "worker-1", .command = {"/tmp"}});

  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr("worker-0: program /no/such/program"));
  EXPECT_EQ(folder.code(), absl::StatusCode::kPermissionDenied) << folder;
}

TEST_F(ChildProcessTest, StopSignalsThatTheLauncherBlocksReachIt) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  // The loop's thread inherits its mask from the thread that starts it.
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &stop, nullptr), 0);
  {
    std::unique_ptr<ChildProcess> process;
    EventLoop blocked("blocked");
    blocked.Post([&] {
      process = *ChildProcess::Start({.name = "worker-0",
                                      .command = {"/bin/sh", "-c", "echo up; exec sleep 1000"},
                                      .environment = {{"PATH", "/usr/bin:/bin"}}},
                                     blocked,
                                     recorder_.Events());
    });
    recorder_.AwaitLine("");
    blocked.Post([&] { process->Signal(SIGTERM); });
    EXPECT_EQ(recorder_.AwaitEnd().signal, SIGTERM);
    blocked.Post([&] { process.reset(); });
  }
  ASSERT_EQ(pthread_sigmask(SIG_UNBLOCK, &stop, nullptr), 0);
}

TEST_F(ChildProcessTest, DestroyingItKillsIt) {
  StartShell("echo up; sleep 1000");
  recorder_.AwaitLine("up");
  const pid_t pid = process_->pid();

  RunOn(loop_, [this] { process_.reset(); });

  EXPECT_EQ(kill(pid, 0), -1);
}

}  // namespace
}  // namespace pushpull
