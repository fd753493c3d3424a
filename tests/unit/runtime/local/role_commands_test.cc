// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/role_commands.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

LaunchOptions Options() {
  return {.manifest_path = "job.yaml",
          .overrides = {"spec.servers.replicas=2", "metadata.name=x"},
          .program = "/nowhere/pushpull",
          .environment = {{"PATH", "/no/such/folder:/bin"}, {"HOME", "/nowhere"}}};
}

TrainingJob Job() {
  TrainingJob job;
  job.metadata.name = "fake";
  job.spec.command = {"sh", "-c", "exit"};
  job.spec.args = {"one", "two words"};
  job.spec.servers.threads = 3;
  return job;
}

TEST(RoleCommandsTest, AWorkerSeesItsOwnGpus) {
  LaunchOptions options = Options();
  options.gpus = {"4", "5", "6", "7"};
  TrainingJob job = Job();
  job.spec.workers.gpus_per_worker = 2;

  const absl::StatusOr<ProcessSpec> worker = WorkerProcess(options, job, 1, "127.0.0.1:1");
  job.spec.workers.gpus_per_worker = 0;
  const absl::StatusOr<ProcessSpec> other = WorkerProcess(options, job, 1, "127.0.0.1:1");

  ASSERT_TRUE(worker.ok() && other.ok());
  EXPECT_THAT(worker->environment, Contains(Pair("CUDA_VISIBLE_DEVICES", "6,7")));
  EXPECT_THAT(other->environment, Not(Contains(Key("CUDA_VISIBLE_DEVICES"))));
}

// Members and an open status page look for it there.
TEST(RoleCommandsTest, ASuccessorListensWhereItsPredecessorDid) {
  const ProcessSpec spec =
      CoordinatorProcess(Options(),
                         {.manifest = "m.yaml",
                          .term = 8,
                          .recover_at = {.control = "127.0.0.1:11", .metrics = "127.0.0.1:12"}});

  EXPECT_THAT(spec.command,
              IsSupersetOf({"--listen", "127.0.0.1:11", "--metrics", "127.0.0.1:12", "--recover"}));
}

TEST(RoleCommandsTest, TheCoordinatorGetsTheManifestAndItsOverrides) {
  const ProcessSpec spec =
      CoordinatorProcess(Options(), {.manifest = "w/manifest.yaml", .term = 7});

  EXPECT_THAT(spec.command,
              ElementsAre("/nowhere/pushpull",
                          "coordinator",
                          "--manifest",
                          "w/manifest.yaml",
                          "--listen",
                          "127.0.0.1:0",
                          "--metrics",
                          "127.0.0.1:0",
                          "--term",
                          "7",
                          "--set",
                          "spec.servers.replicas=2",
                          "--set",
                          "metadata.name=x"));
  EXPECT_TRUE(spec.reports_ready);
}

TEST(RoleCommandsTest, AServerIsToldWhoItIsAndWhomToAsk) {
  const ProcessSpec spec = ServerProcess(Options(), Job(), 4, "127.0.0.1:7170");

  EXPECT_EQ(spec.name, "server-4");
  EXPECT_THAT(spec.command,
              IsSupersetOf({"server",
                            "--job",
                            "fake",
                            "--index",
                            "4",
                            "--coordinator",
                            "127.0.0.1:7170",
                            "--threads",
                            "3"}));
}

TEST(RoleCommandsTest, AWorkersProgramIsLookedUpOnThePath) {
  const absl::StatusOr<ProcessSpec> spec = WorkerProcess(Options(), Job(), 2, "127.0.0.1:7170");

  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->command, ElementsAre("/bin/sh", "-c", "exit", "one", "two words"));
}

TEST(RoleCommandsTest, AProgramBesidePushpullWins) {
  LaunchOptions options = Options();
  options.program = "/usr/bin/pushpull";

  const absl::StatusOr<ProcessSpec> spec = WorkerProcess(options, Job(), 0, "c");

  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->command.front(), "/usr/bin/sh");
}

TEST(RoleCommandsTest, AProgramWithAPathIsTakenAsItIs) {
  TrainingJob job = Job();
  job.spec.command = {"./train"};

  const absl::StatusOr<ProcessSpec> spec = WorkerProcess(Options(), job, 0, "c");

  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->command.front(), "./train");
}

TEST(RoleCommandsTest, AProgramThatIsNowhereIsNamed) {
  TrainingJob job = Job();
  job.spec.command = {"no-such-program"};

  const absl::Status status = WorkerProcess(Options(), job, 0, "c").status();

  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no-such-program"));
}

TEST(RoleCommandsTest, AWorkersEnvironmentIsMergedInOrder) {
  LaunchOptions options = Options();
  options.environment["PUSHPULL_LOG_LEVEL"] = "debug";
  options.environment["COLOUR"] = "blue";
  TrainingJob job = Job();
  job.spec.env = {{.name = "COLOUR", .value = "red"}, {.name = "PUSHPULL_INDEX", .value = "9"}};

  const absl::StatusOr<ProcessSpec> spec = WorkerProcess(options, job, 2, "127.0.0.1:7170");

  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->environment,
              IsSupersetOf({Pair("HOME", "/nowhere"),
                            Pair("COLOUR", "red"),
                            Pair("PUSHPULL_JOB", "fake"),
                            Pair("PUSHPULL_ROLE", "worker"),
                            Pair("PUSHPULL_INDEX", "2"),
                            Pair("PUSHPULL_COORDINATOR", "127.0.0.1:7170"),
                            Pair("PUSHPULL_METRICS_PORT", "0"),
                            Pair("PUSHPULL_LOG_LEVEL", "debug")}));
}

TEST(RoleCommandsTest, ReferencesInAWorkersCommandAreReplacedAsInAPod) {
  TrainingJob job = Job();
  job.spec.command = {"$(SHELL_NAME)", "-c", "$(PUSHPULL_INDEX) of $(PUSHPULL_JOB)"};
  job.spec.args = {"--lr=$(LR)", "$$(LR)", "$(NO_SUCH_NAME)", "$(PUSHPULL_COORDINATOR)"};
  job.spec.env = {{.name = "SHELL_NAME", .value = "sh"}, {.name = "LR", .value = "0.25"}};

  const absl::StatusOr<ProcessSpec> spec = WorkerProcess(Options(), job, 2, "127.0.0.1:7170");

  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(
      spec->command,
      ElementsAre(
          "/bin/sh", "-c", "2 of fake", "--lr=0.25", "$(LR)", "$(NO_SUCH_NAME)", "127.0.0.1:7170"));
}

// The kubelet knows the variables of the container, not those of the machine.
TEST(RoleCommandsTest, AReferenceToAVariableThatNoPodHasStays) {
  LaunchOptions options = Options();
  options.environment["PUSHPULL_SHM_PREFIX"] = "prefix";
  TrainingJob job = Job();
  job.spec.args = {"$(HOME) $(OMP_NUM_THREADS) $(PUSHPULL_SHM_PREFIX)"};

  const absl::StatusOr<ProcessSpec> spec = WorkerProcess(options, job, 0, "c");

  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->command.back(), job.spec.args.back());
}

TEST(RoleCommandsTest, AVariableMayReferToThoseBeforeIt) {
  TrainingJob job = Job();
  job.spec.args = {"$(LATER) $(PATH)"};
  job.spec.env = {{.name = "BASE", .value = "/data"},
                  {.name = "DIR", .value = "$(BASE)/$$(BASE)/$(LATER)/$(PUSHPULL_INDEX)"},
                  {.name = "PATH", .value = "/bin"},
                  {.name = "BASE", .value = "$(BASE)/new"},
                  {.name = "LATER", .value = "$(BASE)"}};

  const absl::StatusOr<ProcessSpec> spec = WorkerProcess(Options(), job, 0, "c");

  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->environment,
              IsSupersetOf({Pair("BASE", "/data/new"),
                            Pair("DIR", "/data/$(BASE)/$(LATER)/$(PUSHPULL_INDEX)"),
                            Pair("LATER", "/data/new")}));
  EXPECT_EQ(spec->command.back(), "/data/new /bin");
}

TEST(RoleCommandsTest, AWorkerOfAGroupIsReachedByTheOthersOnThisHost) {
  TrainingJob job = Job();
  job.spec.sync.local_reduce = LocalReduce::kHost;

  const absl::StatusOr<ProcessSpec> alone = WorkerProcess(Options(), Job(), 0, "c");
  const absl::StatusOr<ProcessSpec> grouped = WorkerProcess(Options(), job, 0, "c");

  EXPECT_THAT(alone->environment, Not(Contains(Key("PUSHPULL_GROUP"))));
  EXPECT_THAT(grouped->environment, Contains(Pair("PUSHPULL_GROUP", "127.0.0.1:0")));
  // Without a topology all workers are on one host, which needs no name.
  EXPECT_THAT(grouped->environment, Not(Contains(Key("PUSHPULL_NODE"))));
  EXPECT_THAT(grouped->environment, Not(Contains(Key("PUSHPULL_RING"))));
}

TEST(RoleCommandsTest, WorkersShareTheCoresUnlessTheUserSaysOtherwise) {
  TrainingJob job = Job();
  job.spec.workers.replicas = 1000;

  const absl::StatusOr<ProcessSpec> shared = WorkerProcess(Options(), job, 0, "c");
  job.spec.env = {{.name = "OMP_NUM_THREADS", .value = "5"}};
  const absl::StatusOr<ProcessSpec> given = WorkerProcess(Options(), job, 0, "c");

  EXPECT_THAT(shared->environment, Contains(Pair("OMP_NUM_THREADS", "1")));
  EXPECT_THAT(given->environment, Contains(Pair("OMP_NUM_THREADS", "5")));
}

}  // namespace
}  // namespace pushpull
