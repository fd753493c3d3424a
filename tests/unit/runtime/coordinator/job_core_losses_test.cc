// SPDX-License-Identifier: Apache-2.0
//
// A job core whose only server is lost, message by message; whole jobs are in
// tests/integration/sim_loss_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/job_core_driver.h"
#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::SizeIs;

constexpr SessionId kNewSession{3};

TensorSpec TheTensor() {
  TensorSpec spec{.name = "w", .dims = {4}};
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.optimizer.learning_rate = 0.1;
  return spec;
}

JobCoreOptions OptionsOf(SyncMode mode) {
  return {.settings = {.job = "j", .workers = 1, .servers = 1},
          .consistency = {.mode = mode},
          .term = Term{7},
          .peer_timeout = seconds(1000),
          .loss_grace = seconds(30),
          .repairs_losses = true};
}

class JobCoreLossesTest : public testing::Test, protected JobCoreDriver {
 protected:
  explicit JobCoreLossesTest(JobCoreOptions options = OptionsOf(SyncMode::kSync))
      : JobCoreDriver(std::move(options)) {
    RegisterTheServer(kServerSession, 1);
    Receive(kAnnSession, RegisterWorker{.worker = WorkerId{0}, .incarnation = Incarnation{1}});
    Receive(kAnnSession, RegisterTensors{{TheTensor()}});
    Receive(kServerSession, TensorsInstalled{1});
    if (Sent<Restore>(kServerSession)) Receive(kServerSession, Restored{});
    const auto proposal = Sent<ProposeView>(kServerSession);
    Receive(kServerSession, ViewAnswer{proposal->view.number, true, Step{0}});
    Receive(kServerSession, Heartbeat{ServerStats{.highest_version = Step{9}}});
    commands_.clear();
  }

  void RegisterTheServer(SessionId session, uint64_t incarnation) {
    Receive(
        session,
        RegisterServer{.incarnation = Incarnation{incarnation}, .data_address = "10.0.0.1:7171"});
  }
  // Another process in the server's place, which has nothing.
  void ANewOneComes() {
    RegisterTheServer(kNewSession, 2);
    const auto [shard, entry] = Sent<SetReplicas>(kNewSession)->entries.front();
    EXPECT_FALSE(Sent<CollectCopies>(kAnnSession).has_value());
    Receive(kNewSession, Promises{{{.shard = shard, .entry = entry, .seq = 0, .is_full = false}}});
  }
  // Ann's answer to the question that was asked last.
  void AnnHas(ChunkCopy::Kind kind) {
    const auto question = Sent<CollectCopies>(kAnnSession);
    ASSERT_TRUE(question.has_value());
    Receive(kAnnSession,
            ShardCopies{.round = question->round,
                        .shard = question->entries.front().first,
                        .chunks = {{.chunk = ChunkId{0},
                                    .kind = kind,
                                    .version = Step{9},
                                    .known = Step{9},
                                    .checksum = 77}}});
  }
};

TEST_F(JobCoreLossesTest, ALostServerIsWaitedForAndTheJobGoesOn) {
  Close(kServerSession);

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kRunning);
  EXPECT_FALSE(Sent<Stop>(kAnnSession).has_value());
  // From here on Ann believes nothing that the old server publishes.
  EXPECT_EQ(Sent<SetReplicas>(kAnnSession)->entries.front().second.primary, std::nullopt);
  const JobStatus status = core_.Status(now_);
  ASSERT_THAT(status.state_losses, SizeIs(1));
  EXPECT_TRUE(status.state_losses[0].is_waiting);
  EXPECT_THAT(ToString(status.state_losses[0]), HasSubstr("lost with server-0; waiting"));
}

TEST_F(JobCoreLossesTest, ANewProcessInItsPlaceIsGivenWhatTheWorkersHave) {
  Close(kServerSession);
  ANewOneComes();
  AnnHas(ChunkCopy::Kind::kComplete);

  const auto order = Sent<RebuildShard>(kNewSession);
  ASSERT_TRUE(order.has_value());
  ASSERT_THAT(order->chunks, SizeIs(1));
  EXPECT_EQ(order->chunks[0].version, Step{9});
  EXPECT_EQ(order->chunks[0].checksum, 77U);
  EXPECT_EQ(Sent<OfferCopies>(kAnnSession)->entry, order->entry);
  EXPECT_NE(Sent<SetReplicas>(kAnnSession)->entries.front().second, order->entry);

  Receive(kNewSession, Rebuilt{.shard = order->shard, .entry = order->entry});

  EXPECT_EQ(Sent<SetReplicas>(kAnnSession)->entries.front().second, order->entry);
  EXPECT_THAT(Said(), HasSubstr("1 value from workers; step 9"));
  EXPECT_TRUE(core_.Status(now_).state_losses[0].is_repaired);
}

TEST_F(JobCoreLossesTest, TheSameProcessIsHeardBeforeAnybodyIsAsked) {
  Close(kServerSession);
  RegisterTheServer(kNewSession, 1);
  const auto [shard, entry] = Sent<SetReplicas>(kNewSession)->entries.front();
  EXPECT_FALSE(Sent<CollectCopies>(kAnnSession).has_value());

  Receive(kNewSession, Promises{{{.shard = shard, .entry = entry, .seq = 9, .is_full = true}}});

  EXPECT_FALSE(Sent<CollectCopies>(kAnnSession).has_value());
  EXPECT_EQ(Sent<SetReplicas>(kAnnSession)->entries.front().second.primary, ServerId{0});
  EXPECT_THAT(Said(), HasSubstr("back with everything"));
}

TEST_F(JobCoreLossesTest, WithoutACopyTheJobFailsAndNamesTheShard) {
  Close(kServerSession);
  ANewOneComes();

  AnnHas(ChunkCopy::Kind::kNone);

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kFailed);
  EXPECT_THAT(core_.Status(now_).failure, HasSubstr("no worker has a copy of chunk 0"));
}

TEST_F(JobCoreLossesTest, ACopyThatHasChangedEndsTheJob) {
  Close(kServerSession);
  ANewOneComes();
  AnnHas(ChunkCopy::Kind::kComplete);
  const auto order = Sent<RebuildShard>(kNewSession);

  Receive(kNewSession,
          Rebuilt{.shard = order->shard,
                  .entry = order->entry,
                  .status = absl::DataLossError("the copy of chunk 0 is another")});

  EXPECT_EQ(core_.Status(now_).phase, JobPhase::kFailed);
  EXPECT_THAT(core_.Status(now_).failure, HasSubstr("server-0 cannot rebuild shard"));
}

TEST_F(JobCoreLossesTest, NobodyIsLetInBeforeTheShardsAreBack) {
  Close(kServerSession);
  ANewOneComes();
  Receive(kNewSession, TensorsInstalled{1});
  commands_.clear();
  Close(kAnnSession);

  EXPECT_FALSE(Sent<ProposeView>(kNewSession).has_value());
}

// A job that began from a checkpoint that is not the newest of its folder, and has saved none yet.
class RestoredJobCoreLossesTest : public JobCoreLossesTest {
 protected:
  static constexpr char kFolder[] = "/checkpoints/lab/j/step-000000000005";

  static JobCoreOptions RestoredOptions() {
    JobCoreOptions options = OptionsOf(SyncMode::kSync);
    options.checkpoint = CheckpointPolicy{.folder = "/checkpoints/lab/j"};
    options.restore = LoadedCheckpoint{.folder = kFolder, .manifest = {}, .skipped = {}};
    options.restore->manifest.step = Step{5};
    options.restore->manifest.tensors = {TheTensor()};
    return options;
  }
  RestoredJobCoreLossesTest() : JobCoreLossesTest(RestoredOptions()) {}
};

TEST_F(RestoredJobCoreLossesTest, ALossIsMadeGoodFromWhereTheJobBegan) {
  Close(kServerSession);
  ANewOneComes();
  AnnHas(ChunkCopy::Kind::kComplete);

  const auto order = Sent<RebuildShard>(kNewSession);

  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->checkpoint, kFolder);
}

class AsyncJobCoreLossesTest : public JobCoreLossesTest {
 protected:
  AsyncJobCoreLossesTest() : JobCoreLossesTest(OptionsOf(SyncMode::kAsync)) {}
};

TEST_F(AsyncJobCoreLossesTest, WithoutStepsALostServerEndsTheJob) {
  Close(kServerSession);

  EXPECT_TRUE(Sent<Stop>(kAnnSession).has_value());
  EXPECT_THAT(core_.Status(now_).failure, HasSubstr("server-0 (10.0.0.1:7171) is lost"));
  EXPECT_THAT(core_.Status(now_).failure, HasSubstr("in the mode Async"));
}

}  // namespace
}  // namespace pushpull
