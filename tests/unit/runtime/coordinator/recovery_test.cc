// SPDX-License-Identifier: Apache-2.0
//
// How long a new coordinator waits for reports. What the reports add up to is in
// collection_test.cc, whole recoveries are in tests/integration/sim_schedule_test.cc.
#include "runtime/coordinator/recovery.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;

class RecoveryTest : public testing::Test {
 protected:
  explicit RecoveryTest(JobCoreOptions::Recovery kind = JobCoreOptions::Recovery::kExpected,
                        bool repairs_losses = false,
                        uint32_t servers = 1)
      : options_{.settings = {.job = "j", .workers = 1, .servers = servers},
                 .consistency = {.mode = servers > 0 ? SyncMode::kSync : SyncMode::kAllReduce},
                 .recovery = kind,
                 .collect_grace = seconds(3),
                 .named_grace = seconds(10),
                 .loss_grace = seconds(20),
                 .repairs_losses = repairs_losses} {}

  void Register(ServerId server, Term promised = Term{1}) {
    registry_.Add(SessionId{server.value() + 1},
                  RegisterServer{.server = server, .promised = promised});
    recovery_.OnRegistered(now_);
  }
  // Server `who` holds the shard, of which `holders` are all members.
  static ServerReport Report(ServerId who, std::vector<ServerId> holders) {
    ReplicaSet entry{{Term{1}, 2}, holders.front()};
    entry.followers.assign(holders.begin() + 1, holders.end());
    const bool is_holder = std::find(holders.begin(), holders.end(), who) != holders.end();
    ServerReport report{.tensors = {{.id = TensorId{0},
                                     .spec = {.name = "w", .dims = {4}, .optimizer = {}},
                                     .first_chunk = ChunkId{0},
                                     .shards = {kShard}}},
                        .entries = {{kShard, entry}},
                        .promises = {},
                        .active = {.number = 4, .members = {}},
                        .proposed = std::nullopt,
                        .desired = {}};
    if (is_holder)
      report.promises.push_back({.shard = kShard, .entry = entry, .seq = 9, .is_full = true});
    return report;
  }
  Recovery::Decision Advance(Duration later = Duration::zero()) {
    now_ += later;
    return recovery_.Advance(now_, 1);
  }
  bool Waits(Duration later = Duration::zero()) {
    return std::holds_alternative<Recovery::Wait>(Advance(later));
  }

  const JobCoreOptions options_;
  SteadyTime now_{};
  MemberRegistry registry_;
  Recovery recovery_{options_, registry_};
};

// Whether or not the coordinator was told to expect anybody.
class RingRecoveryTest : public RecoveryTest {
 protected:
  RingRecoveryTest() : RecoveryTest(JobCoreOptions::Recovery::kIfKnown, false, 0) {}

  using RecoveryTest::Register;
  void Register(WorkerId worker, const DesiredSize& desired) {
    const RegisterWorker registration{.worker = worker, .promised = Term{1}, .is_member = true};
    registry_.Add(SessionId{worker.value() + 1}, registration);
    recovery_.OnRegistered(now_);
    recovery_.Add(registration, WorkerReport{.desired = desired});
  }
  Recovery::Decision Advance(Duration later = Duration::zero()) {
    now_ += later;
    return recovery_.Advance(now_, 0);
  }
};

TEST_F(RingRecoveryTest, WaitsForAllWorkersOfTheRingAndBeginsAnew) {
  Register(WorkerId{0}, {.revision = 4, .workers = 2});

  EXPECT_TRUE(std::holds_alternative<Recovery::Wait>(Advance(seconds(9))));
  EXPECT_TRUE(std::holds_alternative<Recovery::StartNew>(Advance(seconds(1))));
}

TEST_F(RingRecoveryTest, BeginsAnewAtOnceWhenAllWorkersAreBack) {
  Register(WorkerId{0}, {.revision = 4, .workers = 2});
  Register(WorkerId{1}, {.revision = 4, .workers = 2});

  EXPECT_TRUE(std::holds_alternative<Recovery::StartNew>(Advance()));
}

class TwoServersRecoveryTest : public RecoveryTest {
 protected:
  TwoServersRecoveryTest() : RecoveryTest(JobCoreOptions::Recovery::kExpected, false, 2) {}
};

TEST_F(RecoveryTest, GoesOnAtOnceWhenEveryMemberHasReported) {
  Register(kA);
  EXPECT_TRUE(Waits());
  recovery_.Add(kA, Report(kA, {kA}));

  const Recovery::Decision decision = Advance();

  ASSERT_TRUE(std::holds_alternative<Recovery::GoOn>(decision));
  EXPECT_EQ(std::get<Recovery::GoOn>(decision).job.view.number, 4U);
  EXPECT_FALSE(recovery_.is_under_way());
}

TEST_F(RecoveryTest, AMissingFollowerIsWaitedForANamedGrace) {
  Register(kA);
  recovery_.Add(kA, Report(kA, {kA, kB}));
  EXPECT_TRUE(Waits(seconds(9)));

  EXPECT_FALSE(Waits(seconds(1)));
}

TEST_F(RecoveryTest, AFollowersNewProcessEndsTheWaitForTheEarlierOne) {
  Register(kA);
  Register(kB, Term{});
  recovery_.Add(kA, Report(kA, {kA, kB}));

  EXPECT_FALSE(Waits());
}

TEST_F(RecoveryTest, AWorkersNewProcessEndsTheWaitForTheEarlierOne) {
  Register(kA);
  ServerReport report = Report(kA, {kA});
  report.active.members = {{.worker = kAnn, .incarnation = Incarnation{7}, .from_step = Step{0}}};
  recovery_.Add(kA, report);
  EXPECT_TRUE(Waits(seconds(9)));

  registry_.Add(kAnnSession, RegisterWorker{.worker = kAnn, .incarnation = Incarnation{8}});

  EXPECT_FALSE(Waits());
}

TEST_F(RecoveryTest, TheOnlyHolderIsWaitedForALossGrace) {
  Register(kA);
  recovery_.Add(kA, Report(kA, {kB}));
  const Recovery::Decision named = Advance(seconds(10));
  const Recovery::Decision again = Advance(seconds(9));

  EXPECT_THAT(std::get<Recovery::Wait>(named).warning, HasSubstr("shard 5"));
  EXPECT_THAT(std::get<Recovery::Wait>(again).warning, IsEmpty());
  EXPECT_FALSE(Waits(seconds(1)));
}

TEST_F(RecoveryTest, ServersWithoutStateAreExpectedToFindSome) {
  Register(kA);
  recovery_.Add(kA, {});

  EXPECT_TRUE(Waits(seconds(2)));
  EXPECT_TRUE(std::holds_alternative<Recovery::StartNew>(Advance(seconds(1))));
}

TEST_F(TwoServersRecoveryTest, AResizeBeforeTheStartIsRemembered) {
  Register(kA);
  recovery_.Add(kA, {.desired = {.revision = 1, .servers = 1, .workers = 1}});

  const Recovery::Decision decision = Advance(seconds(3));

  ASSERT_TRUE(std::holds_alternative<Recovery::GoOn>(decision));
  EXPECT_FALSE(std::get<Recovery::GoOn>(decision).job.has_begun);
  EXPECT_EQ(std::get<Recovery::GoOn>(decision).job.desired.servers, 1U);
}

TEST_F(RecoveryTest, AJobIsNotStartedAnewWhileAReportIsMissing) {
  Register(kA);
  Register(kB);
  recovery_.Add(kA, {});

  EXPECT_TRUE(Waits(seconds(60)));
}

TEST_F(RecoveryTest, ADepartedMembersReportDoesNotCount) {
  Register(kA);
  recovery_.Add(kA, Report(kA, {kA}));
  recovery_.Remove(kA);

  EXPECT_TRUE(Waits(seconds(60)));
}

TEST_F(RecoveryTest, LeavesAreDeferredUntilTheWorkerIsGone) {
  recovery_.Defer(WorkerId{0}, {});
  recovery_.Defer(WorkerId{1}, {});
  recovery_.Remove(WorkerId{1});

  EXPECT_EQ(recovery_.TakeLeaves().size(), 1U);
  EXPECT_THAT(recovery_.TakeLeaves(), IsEmpty());
}

TEST_F(RecoveryTest, AnswersToAnEarlierCoordinatorAreNotUnderstood) {
  EXPECT_TRUE(Recovery::IsUnderstood(Heartbeat{}));
  EXPECT_TRUE(Recovery::IsUnderstood(ServerReport{}));
  EXPECT_FALSE(Recovery::IsUnderstood(ViewAnswer{}));
  EXPECT_FALSE(Recovery::IsUnderstood(Promises{}));
}

class PossibleRecoveryTest : public RecoveryTest {
 protected:
  PossibleRecoveryTest() : RecoveryTest(JobCoreOptions::Recovery::kIfKnown, true) {}
};

TEST_F(PossibleRecoveryTest, ServersWithoutStateStartTheJobAtOnce) {
  Register(kA, Term{});

  EXPECT_TRUE(std::holds_alternative<Recovery::StartNew>(Advance()));
}

TEST_F(PossibleRecoveryTest, RepairStartsWhenNoHolderCanAppearAnyMore) {
  Register(kA);
  Register(kB);
  ServerReport empty = Report(kB, {kA, kB});
  empty.promises.clear();
  recovery_.Add(kA, empty);
  recovery_.Add(kB, empty);

  // Both holders of the shard have reported that they lack it.
  EXPECT_TRUE(std::holds_alternative<Recovery::GoOn>(Advance()));
}

class FirstCoordinatorTest : public RecoveryTest {
 protected:
  FirstCoordinatorTest() : RecoveryTest(JobCoreOptions::Recovery::kNone) {}
};

TEST_F(FirstCoordinatorTest, AsksNobody) {
  EXPECT_FALSE(recovery_.is_under_way());
}

}  // namespace
}  // namespace pushpull
