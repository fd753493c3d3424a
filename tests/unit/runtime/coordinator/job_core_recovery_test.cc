// SPDX-License-Identifier: Apache-2.0
//
// A coordinator that replaces another, message by message; whole recoveries under faults are in
// tests/integration/sim_schedule_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/coordinator/job_core.h"
#include "tests/unit/runtime/coordinator/job_core_driver.h"
#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::SizeIs;

class JobCoreRecoveryTest : public testing::Test, protected JobCoreDriver {
 protected:
  JobCoreRecoveryTest() : JobCoreRecoveryTest(Options()) {}
  explicit JobCoreRecoveryTest(JobCoreOptions options) : JobCoreDriver(std::move(options)) {}

  static JobCoreOptions Options() {
    return {.settings = {.job = "j", .workers = 1, .servers = 1},
            .term = Term{3},
            .recovery = JobCoreOptions::Recovery::kExpected};
  }

  void RegisterTheServer(Term promised = Term{2}) {
    Receive(kServerSession, RegisterServer{.data_address = "10.0.0.1:7171", .promised = promised});
  }
  void RegisterAnn(uint64_t incarnation = 7) {
    Receive(kAnnSession,
            RegisterWorker{.worker = kAnn,
                           .incarnation = Incarnation{incarnation},
                           .promised = Term{2},
                           .is_member = true});
  }
  // Server and Ann report, and the server has every value.
  void RecoverEverything() {
    RegisterTheServer();
    RegisterAnn();
    Receive(kServerSession, Word());
    Receive(kAnnSession, WorkerReport{.term = Term{3}, .entries = {}, .desired = {}});
    const ReplicaSet entry = Sent<SetReplicas>(kServerSession)->entries.front().second;
    Receive(kServerSession,
            Promises{{{.shard = kShard, .entry = entry, .seq = 9, .is_full = true}}});
  }
  static ReplicaSet Entry() { return {{Term{2}, 8}, ServerId{0}}; }
  static ServerReport Word() {
    return {.term = Term{3},
            .tensors = {{.id = TensorId{0},
                         .spec = {.name = "w", .dims = {4}, .optimizer = {}},
                         .first_chunk = ChunkId{0},
                         .shards = {kShard}}},
            .entries = {{kShard, Entry()}},
            .promises = {{.shard = kShard, .entry = Entry(), .seq = 9, .is_full = true}},
            .active = {.number = 4, .members = {{kAnn, Incarnation{7}, Step{0}, std::nullopt}}},
            .proposed = std::nullopt,
            .desired = {}};
  }
};

TEST_F(JobCoreRecoveryTest, MembersReportBeforeAnythingIsDecided) {
  RegisterTheServer();

  EXPECT_EQ(Sent<Collect>(kServerSession)->term, Term{3});
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRecovering);
  EXPECT_FALSE(Sent<SetReplicas>(kServerSession).has_value());
}

TEST_F(JobCoreRecoveryTest, ASecondRegistrationEndsItsSession) {
  RegisterTheServer();

  Receive(kServerSession, RegisterWorker{.worker = kAnn, .promised = Term{2}, .is_member = true});
  const auto stop = Sent<Stop>(kServerSession);
  const bool is_closed = IsClosed(kServerSession);
  Receive(kServerSession, WorkerReport{.term = Term{3}, .entries = {}, .desired = {}});
  Close(kServerSession);
  Receive(kAnnSession, RegisterServer{.data_address = "10.0.0.1:7172", .promised = Term{2}});

  ASSERT_TRUE(stop.has_value());
  EXPECT_TRUE(is_closed);
  EXPECT_TRUE(Sent<Welcome>(kAnnSession).has_value());
  EXPECT_EQ(core_.Status(now_).servers.size(), 1U);
}

TEST_F(JobCoreRecoveryTest, EveryRequestIsToBeTriedAgain) {
  RegisterTheServer();

  for (const absl::Status& why : {core_.Resize(now_, {.servers = 1}).status(),
                                  core_.SetMode(now_, {.mode = SyncMode::kAsync}).status(),
                                  core_.SaveCheckpoint(now_).status()}) {
    EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
    EXPECT_THAT(std::string(why.message()), HasSubstr("still collecting its members, try again"));
  }
}

// Whoever starts the servers goes by the status.
TEST_F(JobCoreRecoveryTest, TheStatusHasTheSizeThatMembersReport) {
  RegisterTheServer();
  Receive(kServerSession,
          ServerReport{.term = Term{3}, .desired = {.revision = 2, .servers = 3, .workers = 1}});

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRecovering);
  EXPECT_EQ(core_.Status(now_).desired_servers, 3U);
}

TEST_F(JobCoreRecoveryTest, AfterAllReportsTheNewestEntryGetsTheNewTerm) {
  RegisterTheServer();
  RegisterAnn();
  Receive(kServerSession, Word());
  Receive(kAnnSession, WorkerReport{.term = Term{3}, .entries = {}, .desired = {}});

  const auto entries = Sent<SetReplicas>(kServerSession);
  ASSERT_TRUE(entries.has_value());
  const ReplicaSet expected{{Term{3}, 1}, std::nullopt, {ServerId{0}}};
  EXPECT_EQ(entries->entries.front(), std::pair(kShard, expected));
  EXPECT_EQ(Sent<ActivateView>(kAnnSession)->view.number, 5U);
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning);
}

TEST_F(JobCoreRecoveryTest, AWorkerThatDoesNotComeBackIsDeadAfterTheGrace) {
  RegisterTheServer();
  Receive(kServerSession, Word());
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRecovering);

  Tick(seconds(10));

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning);
  EXPECT_TRUE(Sent<ActivateView>(kServerSession)->view.members.empty());
}

TEST_F(JobCoreRecoveryTest, OnlyAWorkerWhosePartWasDoneIsNotReplaced) {
  for (const bool is_released : {false, true}) {
    JobCoreDriver driver(Options());
    ServerReport word = Word();
    word.active.members.front().end_step = Step{6};
    word.active.members.front().is_released = is_released;
    driver.Receive(kServerSession,
                   RegisterServer{.data_address = "10.0.0.1:7171", .promised = Term{2}});
    driver.Receive(kServerSession, word);

    driver.Tick(seconds(3));

    const JobStatus status = driver.Status();
    ASSERT_EQ(status.workers.size(), 1U);
    EXPECT_EQ(status.workers.front().was_released, is_released);
    EXPECT_EQ(status.workers.front().has_left, !is_released);
  }
}

TEST_F(JobCoreRecoveryTest, AJobWhoseWorkersHaveAllLeftSucceeds) {
  ServerReport word = Word();
  word.active.members.front().end_step = Step{6};
  RegisterTheServer();
  Receive(kServerSession, word);

  Tick(seconds(3));
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning);  // until the result is found again
  const ReplicaSet entry = Sent<SetReplicas>(kServerSession)->entries.front().second;
  Receive(kServerSession, Promises{{{.shard = kShard, .entry = entry, .seq = 9, .is_full = true}}});

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kSucceeded);
  EXPECT_TRUE(Sent<Stop>(kServerSession)->status.ok());
}

TEST_F(JobCoreRecoveryTest, AWorkerProcessOutsideOfTheViewIsRejected) {
  RegisterTheServer();
  RegisterAnn(8);
  Receive(kServerSession, Word());

  EXPECT_EQ(Sent<Stop>(kAnnSession)->status.code(), absl::StatusCode::kAborted);
}

TEST_F(JobCoreRecoveryTest, TheJobFailsWhenASoleHolderDoesNotReturn) {
  RegisterTheServer(Term{0});
  RegisterAnn();
  Receive(kAnnSession,
          WorkerReport{.term = Term{3}, .entries = {{kShard, Entry()}}, .desired = {}});
  Tick(seconds(19));
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRecovering);

  Tick(seconds(1));

  EXPECT_THAT(core_.Status(now_).failure, HasSubstr("no server is left"));
}

TEST_F(JobCoreRecoveryTest, AReportToAnEarlierTermIsIgnored) {
  RegisterTheServer();
  ServerReport word = Word();
  word.term = Term{2};

  Receive(kServerSession, word);
  Tick(seconds(60));

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRecovering);
}

TEST_F(JobCoreRecoveryTest, MembersOfAHigherTermAreRejected) {
  RegisterTheServer(Term{4});

  EXPECT_THAT(std::string(Sent<Stop>(kServerSession)->status.message()),
              HasSubstr("one of term 4 has taken over"));
  EXPECT_EQ(Sent<Stop>(kServerSession)->term, Term{3});
}

TEST_F(JobCoreRecoveryTest, AResizeIsRejectedDuringRecovery) {
  RegisterTheServer();

  EXPECT_EQ(core_.Resize(now_, {.servers = 1}).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(JobCoreRecoveryTest, MembersThatKnowNothingStartTheJobFromTheBeginning) {
  RegisterTheServer(Term{0});

  Tick(seconds(3));

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kStarting);
  EXPECT_TRUE(Sent<SetServers>(kServerSession).has_value());
}

class RepairingRecoveryTest : public JobCoreRecoveryTest {
 protected:
  static JobCoreOptions Repairing() {
    JobCoreOptions options = Options();
    options.loss_grace = seconds(30);
    options.repairs_losses = true;
    return options;
  }
  RepairingRecoveryTest() : JobCoreRecoveryTest(Repairing()) {}
};

TEST_F(RepairingRecoveryTest, AServerThatIsLostLaterIsWaitedFor) {
  RecoverEverything();

  Close(kServerSession);

  ASSERT_THAT(core_.Status(now_).state_losses, SizeIs(1));
  EXPECT_TRUE(core_.Status(now_).state_losses[0].is_waiting);
  EXPECT_FALSE(Sent<CollectCopies>(kAnnSession).has_value());
}

TEST_F(RepairingRecoveryTest, AServerThatTheRecoveryWaitedForHasNoSecondGrace) {
  RegisterTheServer(Term{0});
  RegisterAnn();
  ServerReport word = Word();
  word.promises.clear();
  word.entries = {{kShard, {Entry().epoch, ServerId{1}}}};
  Receive(kServerSession, word);
  Receive(kAnnSession, WorkerReport{.term = Term{3}, .entries = {}, .desired = {}});

  Tick(seconds(18));
  Receive(kServerSession, Heartbeat{});
  Receive(kAnnSession, Heartbeat{});
  Tick(seconds(12));

  EXPECT_TRUE(Sent<CollectCopies>(kAnnSession).has_value());
}

class TwoWorkersRecoveryTest : public JobCoreRecoveryTest {
 protected:
  static JobCoreOptions TwoWorkers() {
    JobCoreOptions options = Options();
    options.settings.workers = 2;
    return options;
  }
  TwoWorkersRecoveryTest() : JobCoreRecoveryTest(TwoWorkers()) {}

  void Register(SessionId session, WorkerId worker) {
    Receive(session, RegisterWorker{.worker = worker, .incarnation = Incarnation{7}});
    Receive(session, RegisterTensors{{Word().tensors.front().spec}});
  }
};

// As after a restore: nobody was admitted yet.
TEST_F(TwoWorkersRecoveryTest, ValuesWithoutAViewStillAwaitAllWorkers) {
  RegisterTheServer();
  ServerReport word = Word();
  word.active = {};
  Receive(kServerSession, word);
  Tick(seconds(3));
  const ReplicaSet entry = Sent<SetReplicas>(kServerSession)->entries.front().second;
  Receive(kServerSession, Promises{{{.shard = kShard, .entry = entry, .seq = 9, .is_full = true}}});

  Register(kAnnSession, kAnn);
  const bool was_alone = Sent<ProposeView>(kServerSession).has_value();
  Register(kBobSession, kBob);

  EXPECT_FALSE(was_alone);
  ASSERT_TRUE(Sent<ProposeView>(kServerSession).has_value());
  EXPECT_THAT(Sent<ProposeView>(kServerSession)->view.members, SizeIs(2));
}

class SavingRecoveryTest : public JobCoreRecoveryTest {
 protected:
  static JobCoreOptions Saving() {
    JobCoreOptions options = Options();
    options.peer_timeout = std::chrono::hours(1);
    options.checkpoint = {.folder = "/checkpoints", .every = std::chrono::minutes(10)};
    return options;
  }
  SavingRecoveryTest() : JobCoreRecoveryTest(Saving()) {}
};

TEST_F(SavingRecoveryTest, CheckpointsAreDueAgain) {
  RecoverEverything();

  Tick(std::chrono::minutes(10) - seconds(1));
  EXPECT_FALSE(Sent<Capture>(kServerSession).has_value());
  Tick(seconds(1));

  ASSERT_TRUE(Sent<Capture>(kServerSession).has_value());
  EXPECT_EQ(Sent<Capture>(kServerSession)->folder, "/checkpoints");
}

}  // namespace
}  // namespace pushpull
