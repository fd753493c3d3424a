// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of a job in mode AllReduce, message by message.
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/coordinator/job_core.h"
#include "tests/unit/runtime/coordinator/job_core_driver.h"
#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

constexpr SessionId kNextSession{9};

JobCoreOptions RingOptions() {
  JobCoreOptions options{.settings = {.job = "j", .workers = 2, .servers = 0},
                         .consistency = {.mode = SyncMode::kAllReduce},
                         .term = Term{7}};
  options.checkpoint = CheckpointPolicy{.folder = "/checkpoints", .first_attempt = 50};
  return options;
}

// Ann and Bob train one tensor of two chunks, and their ring is there.
class RingSavesTest : public testing::Test, protected JobCoreDriver {
 protected:
  RingSavesTest() : JobCoreDriver(RingOptions()) {
    Tick(Duration(0));
    Join(kAnnSession, kAnn);
    Join(kBobSession, kBob);
    FormRings();
    commands_.clear();
  }

  void Join(SessionId session, WorkerId worker, uint64_t incarnation = 1) {
    Receive(session,
            RegisterWorker{.worker = worker,
                           .incarnation = Incarnation{incarnation},
                           .ring_address = "10.0.0.1:9000"});
    Receive(session, RegisterTensors{{{.name = "w", .dims = {100'000}}}});
  }
  // Workers do what they are told until a ring is there.
  void FormRings() {
    for (size_t next = 0; next < commands_.size(); ++next) {
      const Command command = commands_[next];
      const auto* send = std::get_if<SendMessage>(&command);
      if (send == nullptr) continue;
      if (const auto* stop = std::get_if<StopRing>(&send->message))
        Receive(send->session, RingStopped{.epoch = stop->epoch, .mark = mark_});
      if (const auto* form = std::get_if<FormRing>(&send->message))
        Receive(send->session, RingNews{.epoch = form->epoch, .status = absl::OkStatus()});
    }
  }
  void ReachStep(uint64_t step) {
    mark_ = RingMark{.made_in = {.term = Term{7}, .counter = 1}, .step = Step{step}};
    for (const SessionId session : {kAnnSession, kBobSession})
      Receive(session, Heartbeat{WorkerStats{.step = Step{step}}});
  }
  void Report(SessionId session, const Capture& order, uint64_t chunk) {
    Captured captured{.attempt = order.attempt};
    captured.files.push_back(
        {.name = "f", .chunks = {{.chunk = ChunkId{chunk}, .version = order.step}}});
    Receive(session, captured);
  }
  std::optional<SaveManifest> Manifest() const {
    for (const Command& command : commands_) {
      if (const auto* save = std::get_if<SaveManifest>(&command)) return *save;
    }
    return std::nullopt;
  }

  std::optional<RingMark> mark_;
};

TEST_F(RingSavesTest, EveryWorkerWritesItsPart) {
  ReachStep(20);
  Take(*core_.SaveCheckpoint(now_));
  const Capture anns = *Sent<Capture>(kAnnSession);
  const Capture bobs = *Sent<Capture>(kBobSession);
  Report(kAnnSession, anns, 0);
  EXPECT_FALSE(Manifest());
  Report(kBobSession, bobs, 1);

  EXPECT_EQ(anns.step, Step{21});
  EXPECT_EQ(std::pair(anns.part, anns.parts), std::pair(0U, 2U));
  EXPECT_EQ(std::pair(bobs.part, bobs.parts), std::pair(1U, 2U));
  ASSERT_TRUE(Manifest());
  EXPECT_EQ(Manifest()->manifest.mode, "AllReduce");
  EXPECT_EQ(Manifest()->files.size(), 2U);
}

TEST_F(RingSavesTest, NextAttemptGivesAnotherThePartOfALostWorker) {
  ReachStep(20);
  Take(*core_.SaveCheckpoint(now_));
  const Capture lost = *Sent<Capture>(kBobSession);
  Close(kBobSession);
  FormRings();
  commands_.clear();

  Take(core_.OnCleared(now_, lost.attempt));

  const auto next = Sent<Capture>(kAnnSession);
  ASSERT_TRUE(next);
  EXPECT_GT(next->attempt, lost.attempt);
  EXPECT_EQ(std::pair(next->part, next->parts), std::pair(0U, 1U));
}

TEST_F(RingSavesTest, WorkerThatJoinsMeanwhileHasNoPart) {
  ReachStep(20);
  Take(*core_.SaveCheckpoint(now_));
  const Capture order = *Sent<Capture>(kAnnSession);
  Take(*core_.Resize(now_, {.workers = 3}));
  Join(kNextSession, WorkerId{2});
  FormRings();
  Report(kAnnSession, order, 0);
  Report(kBobSession, order, 1);

  EXPECT_FALSE(Sent<Capture>(kNextSession));
  EXPECT_TRUE(Manifest());
}

TEST_F(RingSavesTest, WorkersStayUntilTheLastStepIsSaved) {
  ReachStep(30);
  Receive(kAnnSession, Leave{.end_step = Step{30}});
  Receive(kBobSession, Leave{.end_step = Step{30}});
  const Capture order = *Sent<Capture>(kAnnSession);
  Report(kAnnSession, order, 0);
  Report(kBobSession, order, 1);
  FormRings();
  const bool have_stayed = !Sent<StopRing>(kAnnSession);

  Take(core_.OnManifest(now_, order.attempt, absl::OkStatus()));
  FormRings();

  EXPECT_TRUE(order.is_last);
  EXPECT_EQ(order.step, Step{30});
  EXPECT_TRUE(have_stayed);
  ASSERT_TRUE(Sent<ActivateView>(kAnnSession));
  EXPECT_TRUE(Sent<ActivateView>(kAnnSession)->view.members.empty());
  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kSucceeded);
  EXPECT_EQ(core_.Status(now_).checkpoint.step, Step{30});
  EXPECT_EQ(core_.Status(now_).step, Step{30});
}

TEST_F(RingSavesTest, WorkersLeaveIfTheLastSaveFails) {
  ReachStep(30);
  Receive(kAnnSession, Leave{.end_step = Step{30}});
  Receive(kBobSession, Leave{.end_step = Step{30}});
  const Capture order = *Sent<Capture>(kAnnSession);
  Receive(kBobSession,
          Captured{.attempt = order.attempt, .status = absl::ResourceExhaustedError("disk full")});
  Take(core_.OnCleared(now_, order.attempt));
  FormRings();

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kSucceeded);
  EXPECT_EQ(core_.Status(now_).checkpoint.failures, 1U);
}

TEST_F(RingSavesTest, WorkerThatHasNoValuesYetLeavesAtOnce) {
  ReachStep(30);
  Take(*core_.Resize(now_, {.workers = 3}));
  Join(kNextSession, WorkerId{2});

  Receive(kNextSession, Leave{.end_step = Step{30}});

  EXPECT_TRUE(Sent<ActivateView>(kNextSession));
  EXPECT_FALSE(Sent<Capture>(kAnnSession));
}

TEST_F(RingSavesTest, LeaverThatDiesIsNotWaitedFor) {
  ReachStep(30);
  Receive(kBobSession, Leave{.end_step = Step{30}});
  const Capture lost = *Sent<Capture>(kBobSession);
  Close(kBobSession);
  FormRings();
  commands_.clear();

  Take(core_.OnCleared(now_, lost.attempt));

  ASSERT_TRUE(Sent<Capture>(kAnnSession));
  EXPECT_FALSE(Sent<Capture>(kAnnSession)->is_last);
}

TEST_F(RingSavesTest, ReleasedWorkerLeavesAtOnce) {
  ReachStep(30);

  Receive(kBobSession, Leave{.end_step = Step{30}, .is_released = true});

  EXPECT_TRUE(Sent<StopRing>(kAnnSession));
  EXPECT_FALSE(Sent<Capture>(kAnnSession));
}

TEST_F(RingSavesTest, RingWithoutValuesBeginsWithTheLastCheckpoint) {
  ReachStep(20);
  Take(*core_.SaveCheckpoint(now_));
  const Capture order = *Sent<Capture>(kAnnSession);
  Report(kAnnSession, order, 0);
  Report(kBobSession, order, 1);
  Take(core_.OnManifest(now_, order.attempt, absl::OkStatus()));
  Close(kAnnSession);
  Close(kBobSession);
  mark_.reset();
  commands_.clear();

  Join(kNextSession, kAnn, 2);
  FormRings();

  const auto form = Sent<FormRing>(kNextSession);
  ASSERT_TRUE(form);
  EXPECT_TRUE(form->is_fresh);
  EXPECT_EQ(form->restore_from, "/checkpoints/step-000000000021");
  EXPECT_EQ(form->mark.step, Step{21});
}

class RecoveredRingSavesTest : public testing::Test, protected JobCoreDriver {
 protected:
  RecoveredRingSavesTest() : JobCoreDriver(Options()) {}

  static JobCoreOptions Options() {
    JobCoreOptions options = RingOptions();
    options.settings.workers = 1;
    options.recovery = JobCoreOptions::Recovery::kIfKnown;
    return options;
  }
};

// The earlier coordinator has died while Ann waited to leave.
TEST_F(RecoveredRingSavesTest, LastStepIsSavedByTheNextCoordinator) {
  Tick(Duration(0));
  Receive(kAnnSession,
          RegisterWorker{.worker = kAnn,
                         .incarnation = Incarnation{1},
                         .promised = Term{6},
                         .is_member = true,
                         .ring_address = "10.0.0.1:9000"});
  Receive(kAnnSession, RegisterTensors{{{.name = "w", .dims = {4}}}});
  Receive(kAnnSession, Leave{.end_step = Step{30}});
  Tick(std::chrono::seconds(10));
  const StopRing stop = *Sent<StopRing>(kAnnSession);
  const RingMark mark{.made_in = {.term = Term{6}, .counter = 1}, .step = Step{30}};
  Receive(kAnnSession, RingStopped{.epoch = stop.epoch, .mark = mark});
  const auto order = Sent<Capture>(kAnnSession);
  ASSERT_TRUE(order);
  Captured captured{.attempt = order->attempt};
  captured.files.push_back(
      {.name = "f", .chunks = {{.chunk = ChunkId{0}, .version = order->step}}});
  Receive(kAnnSession, captured);
  const bool has_stayed = Sent<StopRing>(kAnnSession)->epoch == stop.epoch;

  Take(core_.OnManifest(now_, order->attempt, absl::OkStatus()));

  EXPECT_EQ(order->step, Step{30});
  EXPECT_TRUE(order->is_last);
  EXPECT_TRUE(has_stayed);
  EXPECT_NE(Sent<StopRing>(kAnnSession)->epoch, stop.epoch);
}

}  // namespace
}  // namespace pushpull
