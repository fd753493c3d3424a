// SPDX-License-Identifier: Apache-2.0
//
// The launcher with processes: its own code in a process of its own, roles that only listen
// (fake_pushpull.cc), and shell scripts as workers.
#include "runtime/local/launcher.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/runtime/local/own_environment.h"
#include "tests/unit/runtime/local/process_recorder.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = absl::StrCat(::testing::TempDir(), "/launcher_XXXXXX");
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    // Whatever a launcher leaves behind becomes a child of this process, where it is seen.
    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  }

  void TearDown() override {
    RunOn(loop_, [this] { launcher_.reset(); });
    ExpectNoProcessIsLeft();
    std::filesystem::remove_all(folder_);
  }

  // Takes what is left; a process that lives on is an error, and hangs until the test's timeout.
  static void ExpectNoProcessIsLeft() {
    while (waitpid(-1, nullptr, 0) > 0) {
    }
    EXPECT_EQ(errno, ECHILD);
  }

  std::string Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  std::string Read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(Path(name)).rdbuf();
    return text.str();
  }
  void Write(const std::string& name, const std::string& text = "") const {
    std::ofstream(Path(name)) << text;
  }

  // Starts the launcher on a job of one server whose workers run `script`. `more` are further lines
  // of the spec.
  void Launch(const std::string& script, const std::string& more = "") {
    Write("job.yaml",
          absl::StrCat(
              "apiVersion: pushpull.dev/v1alpha1\nkind: TrainingJob\n"
              "metadata: {name: fake}\nspec:\n  command: [/bin/sh, -c]\n  args:\n  - |\n    ",
              absl::StrReplaceAll(script, {{"\n", "\n    "}, {"$", "$$"}}),
              "\n",
              more));
    StartLauncher();
  }

  void StartLauncher() {
    RunOn(loop_, [this] {
      absl::StatusOr<std::unique_ptr<ChildProcess>> launcher = ChildProcess::Start(
          {.name = "launcher",
           .command =
               {FAKE_PUSHPULL, "run", Path("job.yaml"), Path("workdir"), Path("report.json")},
           .environment = Environment()},
          loop_,
          recorder_.Events());
      ASSERT_TRUE(launcher.ok()) << launcher.status();
      launcher_ = *std::move(launcher);
    });
  }

  std::map<std::string, std::string> Environment() const {
    std::map<std::string, std::string> environment = OwnEnvironment();
    environment["FAKE_DIR"] = folder_;
    return environment;
  }

  nlohmann::json Report() const { return nlohmann::json::parse(Read("report.json")); }

  std::string folder_;
  ProcessRecorder recorder_;
  EventLoop loop_{"test"};
  std::unique_ptr<ChildProcess> launcher_;
};

// A worker that stays until it is told to end.
// The launcher waits for the coordinator's word for so long.
constexpr char kQuietSoon[] = "  restart: {peerTimeoutSeconds: 1}\n";
constexpr char kStays[] = "touch $FAKE_DIR/view; echo up; exec sleep 1000";

TEST_F(LauncherTest, AJobWhoseWorkersAreAllDoneHasSucceeded) {
  Launch("touch $FAKE_DIR/view; echo hello from $PUSHPULL_INDEX of $PUSHPULL_JOB",
         "  workers: {replicas: 2}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_THAT(recorder_.output(),
              AllOf(HasSubstr("worker-0 | hello from 0 of fake\n"),
                    HasSubstr("worker-1 | hello from 1 of fake\n"),
                    HasSubstr("test accuracy 0.875")));
  EXPECT_EQ(Read("workdir/logs/worker-1.log"), "hello from 1 of fake\n");
  EXPECT_EQ(Report()["phase"], "Succeeded");
  EXPECT_EQ(Report()["final"]["accuracy"], 0.875);
  EXPECT_FALSE(std::filesystem::exists(Path("workdir/endpoints.json")));
}

TEST_F(LauncherTest, TheReportWaitsForTheServersLastStatistics) {
  Launch("echo 4 >$FAKE_DIR/late");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_EQ(Read("late"), "0");
  EXPECT_EQ(Report()["contributors"]["min"], 2);
}

TEST_F(LauncherTest, StatisticsThatNeverComeDoNotKeepTheJobFromEnding) {
  Launch("echo 1000000 >$FAKE_DIR/late");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_EQ(Report()["phase"], "Succeeded");
  EXPECT_EQ(Report()["contributors"]["min"], 1);
}

TEST_F(LauncherTest, AnEndThatSaysSoIsFinalAndItsCodeIsTheJobs) {
  Launch("printf 'pushpull-final: no file /data' >$PUSHPULL_TERMINATION_LOG\nexit 3");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 3) << recorder_.output();
  EXPECT_THAT(
      recorder_.output(),
      HasSubstr("worker-0 exited with code 3; the job fails without a restart: no file /data"));
  EXPECT_EQ(Report()["phase"], "Failed");
  EXPECT_EQ(Report()["restarts"], 0);
}

TEST_F(LauncherTest, AnExitCodeAloneIsNotFinal) {
  Launch("test -e $FAKE_DIR/second && exit 0\ntouch $FAKE_DIR/second\nexit 2",
         "  restart: {initialDelaySeconds: 0}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("worker-0 exited with code 2; restart, 1 of 6"));
}

TEST_F(LauncherTest, AWorkerThatNeverJoinsFailsNoJobThatTrains) {
  Launch(
      "if test $PUSHPULL_INDEX = 0; then\n"
      "  mkfifo $FAKE_DIR/third; touch $FAKE_DIR/view; echo 2 >$FAKE_DIR/wanted_workers\n"
      "  read line <$FAKE_DIR/third; exit 0\n"
      "fi\n"
      "echo start >>$FAKE_DIR/starts\n"
      "if test $(wc -l <$FAKE_DIR/starts) = 3; then echo >$FAKE_DIR/third; exit 0; fi\n"
      "printf \"pushpull-final: not on try $(wc -l <$FAKE_DIR/starts)\" "
      ">$PUSHPULL_TERMINATION_LOG\n"
      "exit 2",
      "  restart: {initialDelaySeconds: 0, backoffLimit: 0}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_THAT(
      recorder_.output(),
      HasSubstr("worker-1 exited with code 2 before its first step; restart, not counted, in "
                "0 s: not on try 2"));
  EXPECT_EQ(Report()["restarts"], 2);
}

TEST_F(LauncherTest, WithoutAWorkerThatCannotJoinTheOthersFinishTheJob) {
  Launch(
      "if test $PUSHPULL_INDEX = 0; then\n"
      "  touch $FAKE_DIR/view; echo 2 >$FAKE_DIR/wanted_workers\n"
      "  until grep -q 'cannot join' $FAKE_DIR/left_out; do sleep 0.01; done; exit 0\n"
      "fi\n"
      "printf 'pushpull-final: not today' >$PUSHPULL_TERMINATION_LOG; exit 2",
      "  restart: {initialDelaySeconds: 0, backoffLimit: 0}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  const std::string why = "cannot join; the job goes on without it: not today";
  EXPECT_EQ(Read("left_out"), "worker-1 " + why);
  EXPECT_THAT(recorder_.output(),
              AllOf(HasSubstr("pushpull: worker-1 " + why), HasSubstr("\nworker-1 " + why)));
  EXPECT_EQ(Report()["left_out"],
            nlohmann::json::parse(absl::StrCat(R"([{"worker":1,"why":")", why, "\"}]")));
  EXPECT_EQ(Report()["restarts"], 1);
}

TEST_F(LauncherTest, AProgramThatEndsAlikeTwiceBeforeAnyStepCannotRun) {
  Launch("echo 'Traceback (most recent call last):'; echo '  File x'; echo 'NameError: x'\nexit 1",
         "  restart: {initialDelaySeconds: 0}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 1) << recorder_.output();
  EXPECT_EQ(Report()["failure"],
            "worker-0 exited with code 1 before the job's first step, as in the try before; the "
            "job fails because its program cannot run: NameError: x");
  EXPECT_EQ(Report()["restarts"], 1);
}

TEST_F(LauncherTest, AProgramThatEndsAlikeAfterAStepIsRestarted) {
  Write("stepped");
  Launch("echo 'out of luck'; exit 1", "  restart: {initialDelaySeconds: 0, backoffLimit: 3}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 1) << recorder_.output();
  EXPECT_THAT(Report()["failure"].get<std::string>(),
              HasSubstr("spec.restart.backoffLimit (3) is reached for this member: out of luck"));
}

TEST_F(LauncherTest, AWorkerThatCrashesIsStartedAgain) {
  Launch("test -e $FAKE_DIR/second && exit 0\ntouch $FAKE_DIR/second\nkill -SEGV $$",
         "  restart: {initialDelaySeconds: 0}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_THAT(recorder_.output(),
              HasSubstr("worker-0 was ended by signal 11 (SIGSEGV); restart, 1 of 6"));
  EXPECT_EQ(Report()["restarts"], 1);
}

TEST_F(LauncherTest, BeyondTheBackoffLimitTheJobFails) {
  Launch("exit 9", "  restart: {backoffLimit: 0}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 1) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("worker-0 exited with code 9; the job fails"));
}

TEST_F(LauncherTest, ARuleCanStartTheWholeJobAnew) {
  Launch("test -e $FAKE_DIR/second && exit 0\ntouch $FAKE_DIR/second\nexit 42",
         "  restart:\n    initialDelaySeconds: 0\n"
         "    rules: [{role: Worker, exitCodes: {in: [42]}, action: RestartJob}]\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_EQ(Read("terms"), "1\n2\n");
  EXPECT_EQ(Report()["restarts"], 1);
}

TEST_F(LauncherTest, AKilledServerEndsTheJobWithTheReason) {
  Launch(
      "kill -KILL $(cat $FAKE_DIR/server-0.pid)\n"
      "printf 'server-0 is lost: tensor w, step 7' >$FAKE_DIR/failure\nexec sleep 1000");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 1) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("failed: server-0 is lost: tensor w, step 7\n"));
}

TEST_F(LauncherTest, AKilledServerIsNamedIfThereIsNoReason) {
  Launch("kill -KILL $(cat $FAKE_DIR/server-0.pid)\nexec sleep 1000", kQuietSoon);

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 1) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("failed: server-0 was killed by signal 9\n"));
}

TEST_F(LauncherTest, AServerThatTheCoordinatorDoesWithoutIsStartedAgain) {
  Launch(
      "touch $FAKE_DIR/view\nfirst=$(cat $FAKE_DIR/server-0.pid)\ntouch $FAKE_DIR/server-0.lost\n"
      "kill -KILL $first\n"
      "while test $(cat $FAKE_DIR/server-0.pid) = $first; do sleep 0.01; done",
      "  restart: {initialDelaySeconds: 0}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_THAT(recorder_.output(),
              HasSubstr("server-0 was ended by signal 9 (SIGKILL); restart, 1 of 6"));
  EXPECT_EQ(Report()["restarts"], 1);
}

// What a coordinator that stood still says first is what it knew before.
TEST_F(LauncherTest, AServerMayEndWhileTheCoordinatorStandsStill) {
  Launch(
      "touch $FAKE_DIR/view\nfirst=$(cat $FAKE_DIR/server-0.pid)\n"
      "coordinator=$(cat $FAKE_DIR/coordinator.pid)\nkill -STOP $coordinator\nkill -KILL $first\n"
      "sleep 5\n"  // for longer than the launcher waits for the coordinator's word
      "echo 3 >$FAKE_DIR/late\nkill -CONT $coordinator\n"
      "while test $(cat $FAKE_DIR/late) != 0; do sleep 0.01; done\n"
      "touch $FAKE_DIR/server-0.lost\n"
      "while test $(cat $FAKE_DIR/server-0.pid) = $first; do sleep 0.01; done",
      "  restart: {peerTimeoutSeconds: 1, initialDelaySeconds: 0}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_EQ(Report()["restarts"], 1);
}

TEST_F(LauncherTest, AServerThatIsKilledBeyondTheBackoffLimitEndsTheJob) {
  Launch(
      "touch $FAKE_DIR/view $FAKE_DIR/server-0.lost\nkill -KILL $(cat $FAKE_DIR/server-0.pid)\n"
      "exec sleep 1000",
      "  restart: {backoffLimit: 0}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 1) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("server-0 was ended by signal 9 (SIGKILL); the job"));
}

TEST_F(LauncherTest, AServerThatTheCoordinatorWantsIsStarted) {
  Launch(
      "touch $FAKE_DIR/view\necho 3 >$FAKE_DIR/wanted\n"
      "until test -s $FAKE_DIR/server-1.pid && test -s $FAKE_DIR/server-2.pid; do sleep 0.01; "
      "done");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_EQ(Report()["restarts"], 0);
}

TEST_F(LauncherTest, AServerThatIsNotWantedAnyMoreMayEnd) {
  Launch(
      "touch $FAKE_DIR/view\necho 2 >$FAKE_DIR/wanted\n"
      "until test -s $FAKE_DIR/server-1.pid; do sleep 0.01; done\n"
      "echo 1 >$FAKE_DIR/wanted\nkill -TERM $(cat $FAKE_DIR/server-1.pid)\n"
      "until ! grep -q '\"index\": *1' $FAKE_DIR/workdir/endpoints.json; do sleep 0.01; done");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_EQ(Report()["restarts"], 0);
}

TEST_F(LauncherTest, AWorkerThatEndsBecauseAServerDiedIsNotToBlame) {
  Launch("kill -KILL $(cat $FAKE_DIR/server-0.pid)\nexit 3", kQuietSoon);

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 1) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("failed: server-0 was killed by signal 9\n"));
}

TEST_F(LauncherTest, AServerThatCannotListenEndsTheJobAtOnce) {
  Write("server-0.refuses");
  Launch(kStays);

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 3) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("server-0 exited with code 3 before it was ready"));
}

TEST_F(LauncherTest, MembersKilledBeforeTheyAreReadyStartAgain) {
  Write("coordinator.dies");
  Write("server-0.dies");
  Launch("touch $FAKE_DIR/view", "  restart: {initialDelaySeconds: 0}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_EQ(Report()["restarts"], 2);
}

TEST_F(LauncherTest, WorkersStartOnceWhateverServersDoBefore) {
  Write("wanted", "2");
  Write("server-0.lost");
  ASSERT_EQ(mkfifo(Path("server-0.gate").c_str(), 0600), 0);
  ASSERT_EQ(mkfifo(Path("server-1.gate").c_str(), 0600), 0);
  Launch(
      "echo started >>$FAKE_DIR/starts\ntouch $FAKE_DIR/view\n"
      "until test -e $FAKE_DIR/may-end; do sleep 0.01; done",
      "  servers: {replicas: 2}\n  restart: {initialDelaySeconds: 0}\n");
  {
    std::ofstream gate(Path("server-1.gate"));  // opens when server-1 has come to it
    { const std::ofstream passed(Path("server-0.gate")); }
    std::filesystem::remove(Path("server-0.gate"));
    kill(std::stoi(Read("server-0.pid")), SIGKILL);
    recorder_.AwaitLine("server-0 was ended by signal 9 (SIGKILL); restart, 1 of 6");
  }
  recorder_.AwaitLine("2 servers ready");
  Write("may-end");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_EQ(Read("starts"), "started\n");
}

TEST_F(LauncherTest, NobodyWaitsForAServerThatIsNotWantedAnyMore) {
  Write("wanted", "1");
  ASSERT_EQ(mkfifo(Path("server-1.gate").c_str(), 0600), 0);
  Launch("touch $FAKE_DIR/view", "  servers: {replicas: 2}\n  startDeadlineSeconds: 20\n");

  std::ofstream gate(Path("server-1.gate"));  // opens when server-1 has come to it
  kill(std::stoi(Read("server-1.pid")), SIGTERM);

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_EQ(Report()["restarts"], 0);
}

// Such a coordinator waits for each server of a job that has not begun.
TEST_F(LauncherTest, ARecoveringCoordinatorGetsTheServersOfTheStart) {
  Write("server-0.dies");
  Write("recovering");
  Launch("touch $FAKE_DIR/view",
         "  startDeadlineSeconds: 20\n  restart: {initialDelaySeconds: 0}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_EQ(Report()["restarts"], 1);
}

TEST_F(LauncherTest, ARecoveringCoordinatorGetsTheServersOfAResize) {
  Launch(
      "touch $FAKE_DIR/recovering\necho 2 >$FAKE_DIR/wanted\n"
      "while test -e $FAKE_DIR/recovering; do sleep 0.01; done\ntouch $FAKE_DIR/view",
      "  startDeadlineSeconds: 20\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_NE(Read("server-1.pid"), "");
}

TEST_F(LauncherTest, AServerOfTheStartAwaitsTheNextCoordinator) {
  Write("server-0.dies");
  Launch("touch $FAKE_DIR/view",
         "  startDeadlineSeconds: 20\n  restart: {initialDelaySeconds: 1}\n");

  recorder_.AwaitLine("server-0 was ended by signal 9 (SIGKILL); restart");
  kill(std::stoi(Read("coordinator.pid")), SIGKILL);

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
}

TEST_F(LauncherTest, WhatTheCoordinatorCallsAFailureEndsTheJob) {
  Launch("touch $FAKE_DIR/view; printf 'NaN in w' >$FAKE_DIR/failure; exec sleep 1000");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 1) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("job fake failed: NaN in w\n"));
}

TEST_F(LauncherTest, AJobThatIsNotReadyInTimeFails) {
  Launch("exec sleep 1000", "  startDeadlineSeconds: 1\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 1) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("within 1 s (spec.startDeadlineSeconds)"));
}

TEST_F(LauncherTest, AJobThatRunsForTooLongFails) {
  Launch(kStays, "  activeDeadlineSeconds: 1\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 1) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("ran for 1 s (spec.activeDeadlineSeconds)"));
}

TEST_F(LauncherTest, AWorkerThatTheCoordinatorHasGivenUpIsReplaced) {
  // A shell between the launcher and the worker, as in `sh -c "a; b"`.
  Launch(
      "test -e $FAKE_DIR/second && exit 0\ntouch $FAKE_DIR/second $FAKE_DIR/view\n"
      "sh -c 'echo $$ >$FAKE_DIR/worker-0.pid; touch $FAKE_DIR/worker-0.lost; exec sleep 1000'\n"
      "exit 0",
      "  restart: {initialDelaySeconds: 0}\n");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("worker-0 was ended by signal 9 (SIGKILL); restart"));
}

TEST_F(LauncherTest, ASignalStopsTheJobInOrder) {
  Launch(
      "trap 'echo saving; exit 0' TERM\ntouch $FAKE_DIR/view\necho up\n"
      "while true; do sleep 0.01; done");
  recorder_.AwaitLine("worker-0 | up");

  RunOn(loop_, [this] { launcher_->Signal(SIGINT); });

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 130) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("worker-0 | saving\n"));
  EXPECT_EQ(Report()["phase"], "Failed");
}

TEST_F(LauncherTest, ASecondSignalStopsItAtOnce) {
  Launch(
      "trap 'echo will not' TERM\ntouch $FAKE_DIR/view\necho up\n"
      "while true; do sleep 0.01; done");
  recorder_.AwaitLine("worker-0 | up");

  RunOn(loop_, [this] { launcher_->Signal(SIGTERM); });
  recorder_.AwaitLine("worker-0 | will not");
  RunOn(loop_, [this] { launcher_->Signal(SIGTERM); });

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 143) << recorder_.output();
}

TEST_F(LauncherTest, NothingIsLeftOfAJobWhoseLauncherIsKilled) {
  Launch("echo $PUSHPULL_SHM_PREFIX >$FAKE_DIR/prefix\nsleep 1000 & echo up; sleep 1000; exit 0");
  recorder_.AwaitLine("worker-0 | up");
  std::string prefix;
  std::ifstream(Path("prefix")) >> prefix;
  const std::string own = absl::StrCat("/", prefix, "chunk");
  const std::string other = "/pushpull-fake-0-chunk";  // of another launcher of the same job
  for (const std::string& name : {own, other})
    FileDescriptor(shm_open(name.c_str(), O_CREAT | O_RDWR, 0600));

  RunOn(loop_, [this] { launcher_->Signal(SIGKILL); });

  EXPECT_EQ(recorder_.AwaitEnd().signal, SIGKILL);
  ExpectNoProcessIsLeft();
  EXPECT_EQ(shm_unlink(own.c_str()), -1);
  EXPECT_EQ(shm_unlink(other.c_str()), 0);
}

TEST_F(LauncherTest, TheFolderOfARunningJobIsRefusedToASecondOne) {
  Launch(kStays);
  recorder_.AwaitLine("worker-0 | up");
  ProcessRecorder second;
  std::unique_ptr<ChildProcess> launcher;
  RunOn(loop_, [&] {
    launcher = *ChildProcess::Start(
        {.name = "second",
         .command = {FAKE_PUSHPULL, "run", Path("job.yaml"), Path("workdir"), Path("other.json")},
         .environment = Environment()},
        loop_,
        second.Events());
  });

  EXPECT_EQ(second.AwaitEnd().exit_code, 3);
  EXPECT_THAT(second.output(),
              HasSubstr(absl::StrCat("process ", launcher_->pid(), " runs a job")));
  RunOn(loop_, [&] { launcher.reset(); });
  RunOn(loop_, [this] { launcher_->Signal(SIGTERM); });
  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 143);
}

TEST_F(LauncherTest, AMissingProgramEndsTheJobBeforeAnythingStarts) {
  Write("job.yaml",
        "apiVersion: pushpull.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: fake}\n"
        "spec: {command: [no-such-program]}\n");
  StartLauncher();

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 3) << recorder_.output();
  EXPECT_THAT(recorder_.output(), HasSubstr("no-such-program is neither beside"));
  EXPECT_FALSE(std::filesystem::exists(Path("terms")));
}

TEST_F(LauncherTest, TheEndpointsOfARunningJobAreListed) {
  // The fake coordinator reports the pid of the file; the list follows it.
  Launch(
      "echo $$ >$FAKE_DIR/worker-0.pid\ntouch $FAKE_DIR/view\n"
      "until grep -q 127.0.0.1:9 $FAKE_DIR/workdir/endpoints.json; do sleep 0.01; done\n"
      "cp $FAKE_DIR/workdir/endpoints.json $FAKE_DIR/list.json");

  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  const nlohmann::json list = nlohmann::json::parse(Read("list.json"));
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]["role"], "coordinator");
  EXPECT_THAT(list[0]["control"].get<std::string>(), HasSubstr("127.0.0.1:"));
  EXPECT_EQ(list[1]["role"], "server");
  EXPECT_EQ(list[1]["data"], "127.0.0.1:7");
  EXPECT_EQ(list[2]["role"], "worker");
  EXPECT_EQ(list[2]["metrics"], "127.0.0.1:9");
  EXPECT_EQ(absl::StrCat(list[2]["pid"].get<int>(), "\n"), Read("worker-0.pid"));
}

TEST_F(LauncherTest, EveryStartHasAHigherTerm) {
  Launch("exit 0");
  EXPECT_EQ(recorder_.AwaitEnd().exit_code, 0) << recorder_.output();
  ProcessRecorder second;
  std::unique_ptr<ChildProcess> launcher;
  RunOn(loop_, [&] {
    launcher = *ChildProcess::Start(
        {.name = "second",
         .command = {FAKE_PUSHPULL, "run", Path("job.yaml"), Path("workdir"), Path("report.json")},
         .environment = Environment()},
        loop_,
        second.Events());
  });

  EXPECT_EQ(second.AwaitEnd().exit_code, 0) << second.output();
  EXPECT_EQ(Read("terms"), "1\n2\n");
  RunOn(loop_, [&] { launcher.reset(); });
}

}  // namespace
}  // namespace pushpull
