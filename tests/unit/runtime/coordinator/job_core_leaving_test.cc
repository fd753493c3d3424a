// SPDX-License-Identifier: Apache-2.0
//
// Servers whose process is told to end, message by message; whole jobs under faults are in
// tests/integration/sim_replication_test.cc and sim_schedule_test.cc.
#include <cstdint>
#include <set>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/colocated_server.h"
#include "runtime/coordinator/job_core.h"
#include "tests/unit/runtime/coordinator/job_core_driver.h"
#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr SessionId kAnnsSession{100};
constexpr SessionId kBobsSession{101};

// One worker, whose tensors are on every server, and servers that do at once what they are told.
class LeavingServersTest : public testing::Test, protected JobCoreDriver {
 protected:
  explicit LeavingServersTest(uint32_t servers = 3)
      : LeavingServersTest({.settings = {.job = "j", .workers = 1, .servers = servers},
                            .max_servers = 8,
                            .term = Term{7}}) {}
  explicit LeavingServersTest(JobCoreOptions options) : JobCoreDriver(std::move(options)) {}

  static SessionId SessionOf(uint32_t server) { return SessionId{server + 1}; }
  void RegisterServer(uint32_t index, SessionId session, uint64_t incarnation = 1) {
    Receive(session,
            pushpull::RegisterServer{.server = ServerId{index},
                                     .incarnation = Incarnation{incarnation},
                                     .data_address = "10.0.0.1:7171"});
  }
  void RegisterServers(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) RegisterServer(i, SessionOf(i));
  }
  void RegisterAnn() { RegisterWorkerAt(kAnnsSession, kAnn); }
  void RegisterWorkerAt(SessionId session, WorkerId worker) {
    Receive(session, RegisterWorker{.worker = worker, .incarnation = Incarnation{1}});
    RegisterTensors tensors;
    for (int i = 0; i < 20; ++i) {
      TensorSpec spec{.name = "t" + std::to_string(i), .dims = {4}};
      spec.optimizer.kind = OptimizerKind::kSgd;
      spec.optimizer.learning_rate = 0.1;
      tensors.tensors.push_back(spec);
    }
    Receive(session, tensors);
  }
  void StartJob(uint32_t servers) {
    RegisterServers(servers);
    RegisterAnn();
    Answer();
  }
  // Servers answer until nothing more is asked of them.
  void Answer() {
    for (size_t next = 0; next < commands_.size(); ++next) {
      const Command command = commands_[next];
      const auto* send = std::get_if<SendMessage>(&command);
      if (send != nullptr && send->session != kAnnsSession && send->session != kBobsSession)
        AnswerOne(*send);
    }
  }
  void AnswerOne(const SendMessage& send) {
    if (const auto* install = std::get_if<InstallTensors>(&send.message))
      Receive(send.session, TensorsInstalled{install->table_version});
    if (const auto* view = std::get_if<ProposeView>(&send.message))
      Receive(send.session, ViewAnswer{view->view.number, true, Step{0}});
    if (const auto* handover = std::get_if<Handover>(&send.message))
      Receive(send.session, HandedOver{handover->shard, handover->next});
    const auto* replicas = std::get_if<SetReplicas>(&send.message);
    if (replicas == nullptr) return;
    for (const auto& [shard, entry] : replicas->entries) {
      entries_[shard] = entry;
      std::vector<ServerId> members = entry.learners;
      members.insert(members.end(), entry.followers.begin(), entry.followers.end());
      for (const ServerId member : members)
        Receive(send.session, CaughtUp{shard, entry.epoch, member});
    }
  }
  std::set<uint32_t> Primaries() const {
    std::set<uint32_t> primaries;
    for (const auto& [shard, entry] : entries_) primaries.insert(entry.primary->value());
    return primaries;
  }
  bool WasReleased(uint32_t server) const {
    const auto stop = Sent<Stop>(SessionOf(server));
    return stop && stop->status.ok();
  }

  std::map<ShardId, ReplicaSet> entries_;
};

TEST_F(LeavingServersTest, GoWhenOthersHaveWhatTheyHeld) {
  StartJob(3);
  ASSERT_EQ(Primaries(), (std::set<uint32_t>{0, 1, 2}));

  Receive(SessionOf(1), DrainRequest{});
  EXPECT_FALSE(WasReleased(1));
  Answer();

  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0, 2}));
  EXPECT_TRUE(WasReleased(1));
  EXPECT_EQ(core_.Status(now_).desired_servers, 3U);
}

TEST_F(LeavingServersTest, HaveTheirPlaceTakenByTheNextProcess) {
  StartJob(3);
  Receive(SessionOf(1), DrainRequest{});
  Answer();

  Close(SessionOf(1));
  RegisterServer(1, SessionId{50}, 2);
  Answer();

  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0, 1, 2}));
  EXPECT_THAT(Said(), HasSubstr("server-1 (10.0.0.1:7171) has gone"));
  EXPECT_THAT(Said(), Not(HasSubstr("lost")));
  EXPECT_FALSE(Sent<Stop>(SessionId{50}).has_value());
}

TEST_F(LeavingServersTest, AskAgainWithoutASecondTurn) {
  StartJob(3);

  Receive(SessionOf(1), DrainRequest{});
  Receive(SessionOf(2), DrainRequest{});
  Receive(SessionOf(1), DrainRequest{});
  Receive(SessionOf(0), DrainRequest{});
  Answer();

  // Who asked last keeps everything.
  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0}));
  EXPECT_TRUE(WasReleased(1));
  EXPECT_TRUE(WasReleased(2));
  EXPECT_FALSE(WasReleased(0));
}

TEST_F(LeavingServersTest, TheLastOfAllGoesWhenAReplacementHasCome) {
  StartJob(3);
  for (uint32_t i = 0; i < 3; ++i) Receive(SessionOf(i), DrainRequest{});
  Answer();
  ASSERT_EQ(Primaries(), (std::set<uint32_t>{2}));
  EXPECT_THAT(Said(), HasSubstr("server-2 keeps its shards for now"));

  Close(SessionOf(0));
  RegisterServer(0, SessionId{50}, 2);
  Answer();

  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0}));
  EXPECT_TRUE(WasReleased(2));
}

TEST_F(LeavingServersTest, MayBeOfASmallerJobAsWell) {
  StartJob(3);
  Receive(SessionOf(0), DrainRequest{});

  Take(*core_.Resize(now_, {.servers = 2}));
  Answer();

  EXPECT_EQ(Primaries(), (std::set<uint32_t>{1}));
  EXPECT_TRUE(WasReleased(0));
  EXPECT_TRUE(WasReleased(2));
}

TEST_F(LeavingServersTest, GoAtOnceBeforeAnythingIsPlaced) {
  RegisterServers(2);

  Receive(SessionOf(0), DrainRequest{});
  RegisterServer(2, SessionOf(2));
  const bool has_begun_without = Sent<SetServers>(SessionOf(2)).has_value();
  RegisterServer(0, SessionId{50}, 2);

  EXPECT_TRUE(WasReleased(0));
  EXPECT_FALSE(has_begun_without);
  EXPECT_TRUE(Sent<SetServers>(SessionOf(2)).has_value());
  EXPECT_THAT(core_.Status(now_).failure, testing::IsEmpty());
}

TEST_F(LeavingServersTest, LeaveTheFirstShardsToTheNextProcess) {
  RegisterServers(3);
  Receive(SessionOf(1), DrainRequest{});
  EXPECT_TRUE(WasReleased(1));

  RegisterAnn();
  Answer();
  EXPECT_TRUE(Primaries().empty());
  RegisterServer(1, SessionId{50}, 2);
  Answer();

  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0, 1, 2}));
}

TEST_F(LeavingServersTest, GoAtOnceWhenTheJobIsDone) {
  StartJob(3);
  Receive(kAnnsSession, Leave{Step{10}, {}});
  ASSERT_EQ(core_.Status(now_).phase, JobPhase::kSucceeded);

  Receive(SessionOf(1), DrainRequest{});

  EXPECT_TRUE(WasReleased(1));
}

TEST_F(LeavingServersTest, AWorkerCannotAsk) {
  StartJob(3);

  Receive(kAnnsSession, DrainRequest{});

  EXPECT_THAT(Sent<Stop>(kAnnsSession)->status.message(), HasSubstr("only a server"));
}

// ---- servers beside workers, which go with them ----

constexpr uint32_t kBesideAnn = ServerBeside(kAnn).value();
constexpr uint32_t kBesideBob = ServerBeside(kBob).value();

// One server of spec.servers, two workers.
class ColocatedServersTest : public LeavingServersTest {
 protected:
  explicit ColocatedServersTest(bool has_them = true)
      : LeavingServersTest({.settings = {.job = "j", .workers = 2, .servers = 1},
                            .max_servers = 8,
                            .max_workers = 2,
                            .has_colocated_servers = has_them,
                            .term = Term{7}}) {}

  void StartJob() {
    RegisterServer(0, SessionOf(0));
    RegisterAnn();
    RegisterWorkerAt(kBobsSession, kBob);
    Answer();
  }
  void StartJobWithAll() {
    StartJob();
    RegisterServer(kBesideAnn, SessionOf(kBesideAnn));
    RegisterServer(kBesideBob, SessionOf(kBesideBob));
    Answer();
    ASSERT_EQ(Primaries(), (std::set<uint32_t>{0, kBesideAnn, kBesideBob}));
  }
  void Resize(const JobSize& size) {
    absl::StatusOr<std::vector<Command>> commands = core_.Resize(now_, size);
    ASSERT_TRUE(commands.ok()) << commands.status();
    Take(*std::move(commands));
    Answer();
  }
};

TEST_F(ColocatedServersTest, AreNotWaitedForAndGetShardsWhenTheyCome) {
  StartJob();
  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0}));
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning);

  RegisterServer(kBesideBob, SessionOf(kBesideBob));
  Answer();

  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0, kBesideBob}));
  EXPECT_EQ(core_.Status(now_).desired_servers, 1U);
}

TEST_F(ColocatedServersTest, ThatComeBeforeTheTensorsGetShardsToo) {
  RegisterServer(kBesideAnn, SessionOf(kBesideAnn));
  StartJob();

  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0, kBesideAnn}));
}

TEST_F(ColocatedServersTest, ThatAreLostBeforeTheTensorsDoNotEndTheJob) {
  RegisterServer(kBesideAnn, SessionOf(kBesideAnn));
  Close(SessionOf(kBesideAnn));
  RegisterServer(0, SessionOf(0));
  RegisterServer(kBesideBob, SessionOf(kBesideBob));
  Close(SessionOf(kBesideBob));

  RegisterAnn();
  RegisterWorkerAt(kBobsSession, kBob);
  Answer();

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning) << Said();
  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0}));
}

TEST_F(ColocatedServersTest, GoWithTheirWorker) {
  StartJobWithAll();

  Resize({.workers = 1});

  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0, kBesideAnn}));
  EXPECT_TRUE(WasReleased(kBesideBob));
  EXPECT_FALSE(WasReleased(kBesideAnn));
  EXPECT_TRUE(Sent<Release>(kBobsSession)->is_released);
}

TEST_F(ColocatedServersTest, KeepWhatTheyHoldUntilOthersHaveIt) {
  StartJobWithAll();
  commands_.clear();

  absl::StatusOr<std::vector<Command>> commands = core_.Resize(now_, {.workers = 1});
  ASSERT_TRUE(commands.ok());
  Take(*std::move(commands));

  EXPECT_FALSE(WasReleased(kBesideBob));
  EXPECT_GT(core_.Status(now_).shards_moving, 0U);
  Answer();
  EXPECT_TRUE(WasReleased(kBesideBob));
}

TEST_F(ColocatedServersTest, ComeBackWithTheirWorker) {
  StartJobWithAll();
  Resize({.workers = 1});
  Close(SessionOf(kBesideBob));

  Resize({.workers = 2});
  RegisterServer(kBesideBob, SessionId{50}, 2);
  Answer();

  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0, kBesideAnn, kBesideBob}));
}

TEST_F(ColocatedServersTest, AreNoneOfThoseThatAreCounted) {
  StartJobWithAll();

  Resize({.servers = 2});
  RegisterServer(1, SessionOf(1));
  Answer();

  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0, 1, kBesideAnn, kBesideBob}));
  Resize({.servers = 1});
  EXPECT_EQ(Primaries(), (std::set<uint32_t>{0, kBesideAnn, kBesideBob}));
  EXPECT_TRUE(WasReleased(1));
}

TEST_F(ColocatedServersTest, OfAWorkerThatIsNotWantedAreRefused) {
  StartJob();

  RegisterServer(kBesideBob + 1, SessionId{50});

  EXPECT_EQ(Sent<Stop>(SessionId{50})->status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Said(), HasSubstr("there is no place for server-1026"));
}

class NoColocatedServersTest : public ColocatedServersTest {
 protected:
  NoColocatedServersTest() : ColocatedServersTest(false) {}
};

TEST_F(NoColocatedServersTest, AreRefusedByAJobThatHasNone) {
  StartJob();

  RegisterServer(kBesideAnn, SessionOf(kBesideAnn));

  EXPECT_EQ(Sent<Stop>(SessionOf(kBesideAnn))->status.code(),
            absl::StatusCode::kFailedPrecondition);
}

// All processes of a job with checkpoints, whose program keeps state of its own, are told to end.
class TakenDownTest : public LeavingServersTest {
 protected:
  TakenDownTest() : LeavingServersTest(Options()) {}

  static JobCoreOptions Options() {
    JobCoreOptions options{.settings = {.job = "j", .workers = 1, .servers = 2}, .term = Term{7}};
    options.checkpoint = CheckpointPolicy{.folder = "/checkpoints", .first_attempt = 50};
    return options;
  }
  void TellAllToEnd() {
    RegisterServers(2);
    Receive(kAnnsSession, RegisterWorker{.worker = kAnn, .incarnation = Incarnation{1}});
    TensorSpec state{.name = "state", .dims = {4}};
    state.optimizer.kind = OptimizerKind::kSum;
    state.reduction = Reduction::kMax;
    Receive(kAnnsSession, RegisterTensors{{state}});
    Answer();
    commands_.clear();
    Take(core_.BeginLeave(now_));
    for (uint32_t server : {0, 1}) Receive(SessionOf(server), DrainRequest{});
  }
};

TEST_F(TakenDownTest, TheStepIsSavedAfterWhichTheLastWorkerLeaves) {
  TellAllToEnd();
  EXPECT_FALSE(Sent<Capture>(SessionOf(0)));

  Receive(kAnnsSession, Leave{.end_step = Step{5}, .stats = {}, .is_released = true});

  const auto order = Sent<Capture>(SessionOf(0));
  ASSERT_TRUE(order);
  EXPECT_EQ(order->step, Step{5});
  EXPECT_TRUE(order->is_last);
  Close(kAnnsSession);
  EXPECT_FALSE(core_.IsNeededNoMore());
}

TEST_F(TakenDownTest, NothingIsSavedOfAProgramWhoseStateIsLost) {
  TellAllToEnd();
  Receive(SessionOf(0), Heartbeat{ServerStats{.highest_version = Step{5}}});

  Close(kAnnsSession);
  Tick(std::chrono::seconds(1));
  EXPECT_TRUE(core_.IsNeededNoMore());
  Take(core_.OnStop());

  EXPECT_FALSE(Sent<Capture>(SessionOf(0)));
  EXPECT_THAT(Said(), HasSubstr("only their programs knew of the last step is lost with them"));
}

TEST_F(TakenDownTest, NobodyJoinsAndNoShardMovesAnyMore) {
  TellAllToEnd();

  Receive(kBobsSession, RegisterWorker{.worker = kAnn, .incarnation = Incarnation{2}});
  Answer();

  EXPECT_FALSE(Sent<Handover>(SessionOf(0)) || Sent<Handover>(SessionOf(1)));
  EXPECT_FALSE(Sent<TensorsRegistered>(kBobsSession));
}

}  // namespace
}  // namespace pushpull
