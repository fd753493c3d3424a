// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/job_core.h"

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/job_core_driver.h"
#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

// Drives a JobCore of one server and two workers by hand.
class JobCoreTest : public testing::Test, protected JobCoreDriver {
 protected:
  JobCoreTest()
      : JobCoreDriver({.settings = {.job = "j", .workers = 2, .servers = 1},
                       .max_servers = 3,
                       .term = Term{7}}) {}

  void RegisterServer0() {
    Receive(kServerSession, RegisterServer{.data_address = "10.0.0.1:7171"});
  }
  void RegisterOne(SessionId session, WorkerId worker, uint64_t incarnation = 1) {
    Receive(session, RegisterWorker{.worker = worker, .incarnation = Incarnation{incarnation}});
  }
  static RegisterTensors Tensors() {
    TensorSpec spec{.name = "w", .dims = {4}};
    spec.optimizer.kind = OptimizerKind::kSgd;
    spec.optimizer.learning_rate = 0.1;
    return {{spec}};
  }
  void AcceptProposal() {
    const auto proposal = Sent<ProposeView>(kServerSession);
    ASSERT_TRUE(proposal.has_value());
    Receive(kServerSession, ViewAnswer{proposal->view.number, true, Step{0}});
  }
  // Until both workers are members.
  void StartJob() {
    RegisterServer0();
    RegisterOne(kAnnSession, kAnn);
    RegisterOne(kBobSession, kBob);
    Receive(kAnnSession, Tensors());
    Receive(kBobSession, Tensors());
    Receive(kServerSession, TensorsInstalled{1});
    AcceptProposal();
    commands_.clear();
  }
};

TEST_F(JobCoreTest, AWorkerIsWelcomedWithTheTermAndTheJob) {
  RegisterOne(kAnnSession, kAnn);

  const auto welcome = Sent<Welcome>(kAnnSession);
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->term, Term{7});
  EXPECT_EQ(welcome->settings.workers, 2U);
}

TEST_F(JobCoreTest, TheFirstStepWaitsForAllWorkersAndTensors) {
  RegisterServer0();
  RegisterOne(kAnnSession, kAnn);
  Receive(kAnnSession, Tensors());
  EXPECT_TRUE(Sent<InstallTensors>(kServerSession).has_value());
  Receive(kServerSession, TensorsInstalled{1});
  EXPECT_FALSE(Sent<ProposeView>(kServerSession).has_value());

  RegisterOne(kBobSession, kBob);
  Receive(kBobSession, Tensors());
  AcceptProposal();

  const auto registered = Sent<TensorsRegistered>(kAnnSession);
  ASSERT_TRUE(registered.has_value());
  EXPECT_TRUE(registered->is_fresh);
  EXPECT_TRUE(Sent<TensorsRegistered>(kBobSession).has_value());
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning);
}

TEST_F(JobCoreTest, TheLastServerWithoutTensorsMayBeLost) {
  constexpr SessionId kLostSession{77};
  JobCoreDriver driver({.settings = {.job = "j", .workers = 1, .servers = 2, .replication = 1}});
  driver.Receive(kServerSession, RegisterServer{.data_address = "10.0.0.1:7171"});
  driver.Receive(kLostSession,
                 RegisterServer{.server = ServerId{1}, .data_address = "10.0.0.2:7171"});
  driver.Receive(kAnnSession, RegisterWorker{.worker = kAnn, .incarnation = Incarnation{1}});
  driver.Receive(kAnnSession, Tensors());
  driver.Receive(kServerSession, TensorsInstalled{1});
  EXPECT_FALSE(driver.Sent<ProposeView>(kServerSession).has_value());

  driver.Close(kLostSession);

  EXPECT_TRUE(driver.Sent<ProposeView>(kServerSession).has_value());
}

TEST_F(JobCoreTest, TensorsThatComeBeforeTheServersAreKept) {
  RegisterOne(kAnnSession, kAnn);
  Receive(kAnnSession, Tensors());

  RegisterServer0();

  EXPECT_TRUE(Sent<InstallTensors>(kServerSession).has_value());
  EXPECT_TRUE(Sent<SetServers>(kAnnSession).has_value());
}

TEST_F(JobCoreTest, ASessionThatBeginsWithoutARegistrationEnds) {
  for (const FromMember& first : {FromMember{Failure{absl::InternalError("down with it")}},
                                  FromMember{ServerReport{}},
                                  FromMember{Leave{}}}) {
    JobCoreDriver driver({.settings = {.job = "j", .workers = 2, .servers = 2}});

    driver.Receive(kServerSession, first);

    EXPECT_TRUE(driver.Sent<Stop>(kServerSession).has_value()) << first.index();
    EXPECT_TRUE(driver.IsClosed(kServerSession)) << first.index();
  }
}

TEST_F(JobCoreTest, AServersSessionThatRegistersAgainEnds) {
  const RegisterServer another{.server = ServerId{1}, .data_address = "10.0.0.2:7171"};
  const RegisterServer same{.data_address = "10.0.0.1:7171"};
  for (const FromMember& second :
       {FromMember{RegisterWorker{.worker = kBob}}, FromMember{another}, FromMember{same}}) {
    JobCoreDriver driver({.settings = {.job = "j", .workers = 2, .servers = 2}, .max_servers = 3});
    driver.Receive(kServerSession, same);

    driver.Receive(kServerSession, second);
    const auto stop = driver.Sent<Stop>(kServerSession);
    const bool is_closed = driver.IsClosed(kServerSession);
    driver.Close(kServerSession);

    ASSERT_TRUE(stop.has_value()) << second.index();
    EXPECT_THAT(std::string(stop->status.message()), HasSubstr("session of server-0"));
    EXPECT_TRUE(is_closed);
    EXPECT_THAT(driver.Status().servers, IsEmpty());
  }
}

TEST_F(JobCoreTest, AWorkersSessionThatRegistersAgainEnds) {
  StartJob();
  SessionId bob = kBobSession;
  for (const FromMember& second : {FromMember{RegisterServer{.server = ServerId{1}}},
                                   FromMember{RegisterWorker{.worker = kAnn}},
                                   FromMember{RegisterWorker{.worker = kBob}}}) {
    commands_.clear();

    Receive(bob, second);
    const auto stop = Sent<Stop>(bob);
    const bool is_closed = IsClosed(bob);
    Close(bob);

    ASSERT_TRUE(stop.has_value()) << second.index();
    EXPECT_THAT(std::string(stop->status.message()), HasSubstr("session of worker-1"));
    EXPECT_TRUE(is_closed);
    EXPECT_FALSE(IsClosed(kAnnSession));
    EXPECT_EQ(core_.Status(now_).servers.size(), 1U);
    EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning);
    bob = SessionId{bob.value() + 9};
    RegisterOne(bob, kBob, bob.value());
  }
}

TEST_F(JobCoreTest, ADeadWorkersReplacementJoinsLater) {
  StartJob();

  Close(kBobSession);

  const auto without = Sent<ActivateView>(kServerSession);
  ASSERT_TRUE(without.has_value());
  EXPECT_EQ(without->view.Find(kBob), nullptr);
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning);

  const SessionId again{9};
  RegisterOne(again, kBob, 2);
  Receive(again, Tensors());
  const uint64_t early = Sent<ProposeView>(kServerSession)->view.number;
  Receive(kServerSession, ViewAnswer{early, false, Step{5}});
  AcceptProposal();

  const auto registered = Sent<TensorsRegistered>(again);
  ASSERT_TRUE(registered.has_value());
  EXPECT_FALSE(registered->is_fresh);
}

TEST_F(JobCoreTest, AJobThatHasFailedAdmitsNobody) {
  StartJob();
  Close(kBobSession);
  const SessionId again{9};
  RegisterOne(again, kBob, 2);
  Receive(kServerSession, Failure{absl::InternalError("out of memory")});
  commands_.clear();

  Receive(again, Tensors());

  EXPECT_THAT(commands_, IsEmpty());
}

TEST_F(JobCoreTest, ASilentWorkerIsGivenUpAfterTheTimeout) {
  StartJob();
  for (int i = 0; i < 19; ++i) Tick(std::chrono::seconds(1));
  Receive(kAnnSession, Heartbeat{WorkerStats{}});
  Receive(kServerSession, Heartbeat{ServerStats{}});

  Tick(std::chrono::seconds(2));

  EXPECT_TRUE(IsClosed(kBobSession));
  EXPECT_FALSE(IsClosed(kAnnSession));
  EXPECT_EQ(Sent<ActivateView>(kServerSession)->view.Find(kBob), nullptr);
}

TEST_F(JobCoreTest, ALostServerFailsTheJobAndTheWorkersSayWhatItCost) {
  StartJob();

  Close(kServerSession);
  ASSERT_TRUE(Sent<Stop>(kAnnSession).has_value());
  EXPECT_FALSE(Sent<Stop>(kAnnSession)->status.ok());
  Receive(
      kAnnSession,
      Failure{absl::UnavailableError("push_pull of tensor \"w\" step 3: no answer from server-0")});

  const JobStatus status = core_.Status(now_);
  EXPECT_EQ(status.phase, JobPhase::kFailed);
  EXPECT_THAT(status.failure, HasSubstr("server-0 (10.0.0.1:7171) is lost"));
  EXPECT_THAT(status.failure, HasSubstr("tensor \"w\" step 3"));
}

TEST_F(JobCoreTest, AWorkersFailureDoesNotEndARunningJob) {
  StartJob();
  const Failure failure{absl::UnavailableError("pull of tensor \"w\" step 6: no answer")};

  Receive(kAnnSession, failure);
  Close(kBobSession);
  Receive(kBobSession, failure);

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning) << core_.Status(now_).failure;
}

TEST_F(JobCoreTest, AJobWithoutDividedSamplesHasNoBatchToSet) {
  StartJob();

  const auto refused = core_.Resize(now_, {.workers = 1, .global_batch = 64});

  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("divides no data set among its workers"));
  EXPECT_EQ(core_.Status(now_).global_batch, 0u);
  EXPECT_EQ(core_.Status(now_).desired_workers, 2u);
}

TEST_F(JobCoreTest, OutOfRangeNumbersOfServersAreRejected) {
  StartJob();

  const auto none = core_.Resize(now_, {.servers = 0});
  const auto too_many = core_.Resize(now_, {.servers = 4});

  EXPECT_TRUE(absl::IsInvalidArgument(none.status()));
  EXPECT_TRUE(absl::IsInvalidArgument(too_many.status()));
  EXPECT_THAT(std::string(too_many.status().message()),
              AllOf(HasSubstr("spec.servers.replicas"), HasSubstr("3 (maxReplicas), is 4")));
  EXPECT_EQ(core_.Status(now_).desired_servers, 1u);
  EXPECT_THAT(core_.Status(now_).resizes, IsEmpty());
}

TEST_F(JobCoreTest, AResizeSettlesWhenNothingMovesAnyMore) {
  StartJob();

  ASSERT_TRUE(core_.Resize(now_, {.servers = 2}).ok());
  Tick(std::chrono::milliseconds(500));
  const std::vector<ResizeStatus> before = core_.Status(now_).resizes;
  ASSERT_TRUE(core_.Resize(now_, {.servers = 1}).ok());
  Tick(std::chrono::milliseconds(500));

  ASSERT_EQ(before.size(), 1u);
  EXPECT_FALSE(before[0].is_settled);
  const std::vector<ResizeStatus> after = core_.Status(now_).resizes;
  ASSERT_EQ(after.size(), 2u);
  EXPECT_EQ(after[1].from, 2u);
  EXPECT_EQ(after[1].to, 1u);
  EXPECT_TRUE(after[1].is_settled);
}

TEST_F(JobCoreTest, WithoutAWordFromTheWorkersTheJobFailsAfterAGrace) {
  StartJob();
  Close(kServerSession);
  EXPECT_NE(core_.Status(now_).phase, JobPhase::kFailed);

  Tick(std::chrono::seconds(2));

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kFailed);
}

TEST_F(JobCoreTest, SucceedsWhenEveryWorkerHasLeft) {
  StartJob();

  Receive(kAnnSession, Leave{Step{10}, {}});
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning);
  Receive(kBobSession, Leave{Step{10}, {}});
  Close(kAnnSession);
  Close(kBobSession);
  Close(kServerSession);

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kSucceeded);
  EXPECT_THAT(core_.Status(now_).failure, IsEmpty());
}

TEST_F(JobCoreTest, ACoordinatorThatEndsLeavesARunningJobToTheNextOne) {
  StartJob();

  Take(core_.OnStop());
  Close(kServerSession);

  EXPECT_FALSE(Sent<Stop>(kServerSession).has_value());
  EXPECT_FALSE(Sent<Stop>(kAnnSession).has_value());
  EXPECT_THAT(Said(), IsEmpty());
}

TEST_F(JobCoreTest, TheOthersCompleteAJobThatGoesOnWithoutAWorker) {
  StartJob();
  Close(kBobSession);

  ASSERT_TRUE(core_.Resize(now_, {.left_out = {{WorkerId{1}, "cannot join"}}}).ok());
  const JobStatus left_out = core_.Status(now_);
  Receive(kAnnSession, Leave{Step{10}, {}});

  EXPECT_EQ(left_out.workers.at(1).left_out, "cannot join");
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kSucceeded);
}

// It has told a coordinator that is gone.
TEST_F(JobCoreTest, AWorkerIsDoneIfItsSupervisorSaysSo) {
  StartJob();
  Close(kBobSession);

  ASSERT_TRUE(core_.Resize(now_, {.left_out = {{WorkerId{1}, ""}}}).ok());
  const JobStatus told = core_.Status(now_);
  Receive(kAnnSession, Leave{Step{10}, {}});

  EXPECT_TRUE(told.workers.at(1).has_left);
  EXPECT_EQ(told.workers.at(1).left_out, "");
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kSucceeded);
}

TEST_F(JobCoreTest, ACoordinatorOfAJobThatIsTakenDownStopsItsServers) {
  StartJob();

  Take(core_.OnStop(JobCore::Successor::kNone));

  ASSERT_TRUE(Sent<Stop>(kServerSession).has_value());
  EXPECT_TRUE(Sent<Stop>(kServerSession)->status.ok());
}

TEST_F(JobCoreTest, ACoordinatorIsNeededWhileAnybodyMayGoOnWithAnother) {
  StartJob();
  Receive(kServerSession, DrainRequest{});
  EXPECT_FALSE(core_.IsNeededNoMore());

  Close(kAnnSession);
  EXPECT_FALSE(core_.IsNeededNoMore());
  Close(kBobSession);

  EXPECT_TRUE(core_.IsNeededNoMore());
  Take(core_.OnStop());
  EXPECT_TRUE(Sent<Stop>(kServerSession).has_value());
}

TEST_F(JobCoreTest, ACoordinatorStopsServersAfterTheJob) {
  StartJob();
  Receive(kAnnSession, Leave{Step{10}, {}});
  Receive(kBobSession, Leave{Step{10}, {}});

  Take(core_.OnStop());

  ASSERT_TRUE(Sent<Stop>(kServerSession).has_value());
  EXPECT_TRUE(Sent<Stop>(kServerSession)->status.ok());
}

TEST_F(JobCoreTest, ANewProcessTakesTheOldOnesPlace) {
  StartJob();

  RegisterOne(SessionId{9}, kBob, 2);

  EXPECT_TRUE(IsClosed(kBobSession));
  EXPECT_EQ(Sent<ActivateView>(kServerSession)->view.Find(kBob), nullptr);
}

TEST_F(JobCoreTest, RefusesMembersItHasNoPlaceFor) {
  Receive(SessionId{5}, RegisterWorker{.worker = WorkerId{2}});
  Receive(SessionId{6}, RegisterServer{.server = ServerId{1}});
  RegisterServer0();
  Receive(SessionId{8}, RegisterServer{.incarnation = Incarnation{9}});

  EXPECT_THAT(Sent<Stop>(SessionId{5})->status.message(),
              HasSubstr("has 2 workers, there is no place for worker-2"));
  EXPECT_THAT(Sent<Stop>(SessionId{6})->status.message(),
              HasSubstr("has 1 servers, there is no place for server-1"));
  EXPECT_THAT(Sent<Stop>(SessionId{8})->status.message(),
              HasSubstr("server-0 is already registered"));
}

TEST_F(JobCoreTest, MessagesOutOfRoleEndTheSessionAndNothingElse) {
  StartJob();
  const SessionId stranger{9};

  Receive(stranger, Tensors());
  Receive(stranger, TensorsInstalled{1});
  Receive(stranger, ViewAnswer{1, true, Step{0}});
  Receive(stranger, Leave{});
  Receive(kServerSession, Leave{});

  EXPECT_TRUE(IsClosed(stranger));
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning);
}

TEST_F(JobCoreTest, ARisingSizeKeepsReleasedWorkers) {
  StartJob();

  ASSERT_TRUE(core_.Resize(now_, {.workers = 5000}).status().code() ==
              absl::StatusCode::kInvalidArgument);
  Take(*core_.Resize(now_, {.workers = 1}));
  const auto released = Sent<Release>(kBobSession);
  const auto kept = Sent<Release>(kAnnSession);
  commands_.clear();
  Take(*core_.Resize(now_, {.workers = 2}));
  const auto again = Sent<Release>(kBobSession);

  ASSERT_TRUE(released.has_value());
  EXPECT_TRUE(released->is_released);
  EXPECT_FALSE(kept.has_value());
  ASSERT_TRUE(again.has_value());
  EXPECT_FALSE(again->is_released);
}

TEST_F(JobCoreTest, AReleasedWorkersLeaveDoesNotEndTheJob) {
  StartJob();
  Take(*core_.Resize(now_, {.workers = 1}));

  Receive(kBobSession, Leave{.end_step = Step{3}, .stats = {}, .is_released = true});
  Close(kBobSession);
  const JobPhase without_bob = core_.Status(now_).phase;
  Receive(kAnnSession, Leave{.end_step = Step{9}, .stats = {}});

  EXPECT_EQ(without_bob, JobPhase::kRunning);
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kSucceeded);
}

TEST_F(JobCoreTest, AWorkerThatLeavesEarlyIsReplacedBeforeTheJobEnds) {
  StartJob();

  Receive(kBobSession, Leave{.end_step = Step{3}, .stats = {}, .is_released = true});
  EXPECT_TRUE(Sent<ActivateView>(kServerSession)->view.Find(kBob)->is_released);
  Close(kBobSession);
  Receive(kAnnSession, Leave{Step{10}, {}});
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning);
  const SessionId next{9};
  RegisterOne(next, kBob, 2);
  Receive(next, Leave{Step{10}, {}});

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kSucceeded);
}

TEST_F(JobCoreTest, AnUndesiredWorkerIsRejected) {
  StartJob();
  Take(*core_.Resize(now_, {.workers = 3}));
  RegisterOne(SessionId{30}, WorkerId{2});
  RegisterOne(SessionId{31}, WorkerId{3});

  EXPECT_TRUE(Sent<Welcome>(SessionId{30}).has_value());
  EXPECT_TRUE(Sent<Stop>(SessionId{31}).has_value());
}

TEST_F(JobCoreTest, BothSizesAreCheckedBeforeEitherChanges) {
  StartJob();

  const auto refused = core_.Resize(now_, {.servers = 2, .workers = 5000});

  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("spec.workers.replicas"));
  EXPECT_EQ(core_.Status(now_).desired_servers, 1U);
}

TEST_F(JobCoreTest, AModeThatContradictsItselfOrTheManifestIsRefused) {
  StartJob();

  const auto stale = core_.SetMode(now_, {.mode = SyncMode::kAsync, .staleness = 3});
  const auto unknown = core_.SetMode(now_, {.mode = static_cast<SyncMode>(9)});

  EXPECT_TRUE(absl::IsInvalidArgument(stale.status())) << stale.status();
  EXPECT_THAT(std::string(stale.status().message()), HasSubstr("spec.sync.staleness"));
  EXPECT_TRUE(absl::IsInvalidArgument(unknown.status())) << unknown.status();
  EXPECT_FALSE(core_.Status(now_).is_mode_changing);
}

TEST_F(JobCoreTest, BeforeItsFirstStepAJobKeepsItsMode) {
  RegisterServer0();

  const auto early = core_.SetMode(now_, {.mode = SyncMode::kAsync});

  EXPECT_TRUE(absl::IsFailedPrecondition(early.status())) << early.status();
}

TEST_F(JobCoreTest, TheModeChangesWhenStepsAreDrained) {
  StartJob();

  Take(*core_.SetMode(now_, {.mode = SyncMode::kBounded, .staleness = 3}));
  const auto ask = Sent<HoldSteps>(kAnnSession);
  ASSERT_TRUE(ask.has_value());
  for (const SessionId session : {kAnnSession, kBobSession})
    Receive(session, StepsHeld{.round = ask->round, .next_step = Step{4}});
  for (const SessionId session : {kAnnSession, kBobSession}) {
    Receive(session, StepsHeld{.round = ask->round, .next_step = Step{4}, .is_drained = true});
  }
  EXPECT_TRUE(core_.Status(now_).is_mode_changing);
  AcceptProposal();

  const auto view = Sent<ActivateView>(kAnnSession);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->view.consistency.mode, SyncMode::kBounded);
  EXPECT_EQ(view->view.consistency.from_step, Step{4});
  EXPECT_EQ(core_.Status(now_).consistency.staleness, 3U);
  EXPECT_FALSE(core_.Status(now_).is_mode_changing);
}

TEST_F(JobCoreTest, JoinsWaitForAChangeOfMode) {
  StartJob();
  Close(kBobSession);
  Take(*core_.SetMode(now_, {.mode = SyncMode::kAsync}));
  const auto ask = Sent<HoldSteps>(kAnnSession);
  ASSERT_TRUE(ask.has_value());
  commands_.clear();
  RegisterOne(kBobSession, kBob, 2);
  Receive(kBobSession, Tensors());
  EXPECT_FALSE(Sent<ProposeView>(kServerSession).has_value());

  Receive(kAnnSession, StepsHeld{.round = ask->round, .next_step = Step{4}});
  Receive(kAnnSession, StepsHeld{.round = ask->round, .next_step = Step{4}, .is_drained = true});
  AcceptProposal();
  AcceptProposal();

  const auto view = Sent<ActivateView>(kAnnSession);
  ASSERT_TRUE(view.has_value());
  EXPECT_NE(view->view.Find(kBob), nullptr);
}

TEST_F(JobCoreTest, ACoordinatorsPauseIsNoSilenceOfMembers) {
  StartJob();
  Tick(std::chrono::seconds(1));

  Tick(std::chrono::minutes(5));
  const JobPhase after_pause = core_.Status(now_).phase;
  for (int i = 0; i < 25; ++i) {
    Receive(kAnnSession, Heartbeat{WorkerStats{}});
    Receive(kBobSession, Heartbeat{WorkerStats{}});
    Tick(std::chrono::seconds(1));
  }

  EXPECT_EQ(after_pause, JobPhase::kRunning);
  EXPECT_NE(core_.Status(now_).phase, JobPhase::kRunning);  // now the server is silent
  EXPECT_THAT(SteppedDown(), IsEmpty());
}

TEST_F(JobCoreTest, AfterAStandstillAServersEndMakesItStepDown) {
  StartJob();
  Tick(std::chrono::seconds(24));
  Tick(std::chrono::seconds(3));
  EXPECT_THAT(SteppedDown(), IsEmpty());

  Close(kServerSession);

  EXPECT_THAT(SteppedDown(), HasSubstr("it stood still for 24.0 s"));
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning);
  EXPECT_FALSE(Sent<Stop>(kAnnSession).has_value());
}

TEST_F(JobCoreTest, AfterAStandstillAWorkersEndMakesItStepDown) {
  StartJob();
  Tick(std::chrono::seconds(24));

  Close(kAnnSession);

  EXPECT_THAT(SteppedDown(), HasSubstr("it stood still for 24.0 s"));
}

TEST_F(JobCoreTest, StepsDownWhenAMemberReturnsBeforeItsSessionEnds) {
  StartJob();
  Tick(std::chrono::seconds(24));

  RegisterOne(SessionId{77}, kAnn);

  EXPECT_THAT(SteppedDown(), HasSubstr("it stood still for 24.0 s"));
  EXPECT_FALSE(Sent<Welcome>(SessionId{77}).has_value());
}

TEST_F(JobCoreTest, ANewProcessIsNoReasonToStepDown) {
  StartJob();
  Tick(std::chrono::seconds(24));

  RegisterOne(SessionId{77}, kAnn, 2);

  EXPECT_THAT(SteppedDown(), IsEmpty());
  EXPECT_TRUE(Sent<Welcome>(SessionId{77}).has_value());
}

TEST_F(JobCoreTest, LongAfterAStandstillAClosedSessionIsALostMember) {
  StartJob();
  Tick(std::chrono::seconds(24));
  for (int i = 0; i < 11; ++i) {
    Receive(kServerSession, Heartbeat{ServerStats{}});
    Receive(kAnnSession, Heartbeat{WorkerStats{}});
    Tick(std::chrono::seconds(2));
  }

  Close(kServerSession);

  EXPECT_THAT(SteppedDown(), IsEmpty());
  EXPECT_THAT(core_.Status(now_).failure, HasSubstr("server-0 (10.0.0.1:7171) is lost"));
}

TEST_F(JobCoreTest, AWorkerThatLeavesIsNoReasonToStepDown) {
  StartJob();
  Receive(kAnnSession, Leave{Step{10}, {}});
  Tick(std::chrono::seconds(24));

  Close(kAnnSession);

  EXPECT_THAT(SteppedDown(), IsEmpty());
}

TEST_F(JobCoreTest, StepsDownWhenMostMembersAreSilentAtOnce) {
  StartJob();
  Receive(kServerSession, Heartbeat{ServerStats{}});
  Receive(kAnnSession, Heartbeat{WorkerStats{}});
  for (int i = 0; i < 21; ++i) {
    Receive(kBobSession, Heartbeat{WorkerStats{}});
    Tick(std::chrono::seconds(1));
  }

  EXPECT_THAT(SteppedDown(), HasSubstr("2 of its 3 members have been silent"));
  EXPECT_FALSE(IsClosed(kAnnSession));
}

TEST_F(JobCoreTest, OneThatHasSteppedDownDecidesNothing) {
  StartJob();
  Tick(std::chrono::seconds(24));
  Close(kServerSession);
  commands_.clear();

  Close(kAnnSession);
  RegisterOne(SessionId{77}, kAnn);
  Tick(std::chrono::seconds(30));
  const auto resized = core_.Resize(now_, {.servers = 2});
  Take(core_.OnStop());

  EXPECT_THAT(commands_, IsEmpty());
  EXPECT_TRUE(absl::IsUnavailable(resized.status())) << resized.status();
}

}  // namespace
}  // namespace pushpull
