// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/step_agreement.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;

constexpr WorkerId kSelf{1};
constexpr Step kStep{5};
constexpr Step kNext{6};

// Two tensors of a chunk each; chunk 0 leads.
class StepAgreementTest : public testing::Test {
 protected:
  StepAgreementTest() {
    chunks_.SetTensors(
        {{.id = TensorId{0}, .spec = {.name = "a", .dims = {4}}, .shards = {ShardId{0}}},
         {.id = TensorId{1}, .spec = {.name = "b", .dims = {4}}, .shards = {ShardId{1}}}});
  }

  void UseBackupWorkers() { step_.UseMode({.backup_workers = 1}); }
  void UseGatedSteps() { step_.UseMode({.gated = true}); }

  void Push(size_t tensor) {
    ClientChunk& chunk = chunks_.chunks()[tensor];
    chunk.push = ChunkRequest{.type = FrameType::kPushPull,
                              .step = kStep,
                              .target = {},
                              .priority = 0,
                              .server = ServerId{},
                              .is_held = step_.HoldsBack(chunk),
                              .held_version = kStep,
                              .pending = std::make_shared<PendingOperation>("push")};
    step_.OnTensorPushed(*chunk.push->pending);
  }

  void Answer(size_t chunk, Step version) {
    chunks_.chunks()[chunk].push->is_answered = true;
    chunks_.chunks()[chunk].push->held_version = version;
  }

  RequestTable chunks_;
  StepAgreement step_{kSelf, chunks_};
};

TEST_F(StepAgreementTest, OtherModesNeedNoAgreement) {
  step_.UseMode({});

  EXPECT_FALSE(step_.is_led());
  EXPECT_FALSE(step_.HoldsBack(chunks_.leading()));
  EXPECT_TRUE(step_.Next().empty());
}

TEST_F(StepAgreementTest, BackupWorkersSendLeadingChunkWhenAllArePushed) {
  UseBackupWorkers();

  Push(0);
  EXPECT_TRUE(step_.Next().empty());
  EXPECT_TRUE(chunks_.chunks()[0].push->is_held);
  Push(1);

  EXPECT_THAT(step_.Next().push, ElementsAre(ChunkId{0}));
  EXPECT_FALSE(chunks_.chunks()[0].push->is_held);
  EXPECT_TRUE(chunks_.chunks()[1].push->is_held);
  EXPECT_TRUE(step_.Next().empty());
}

TEST_F(StepAgreementTest, AdmittedWorkerPushesTheOtherChunks) {
  UseBackupWorkers();
  Push(0);
  Push(1);
  step_.Next();

  step_.OnAdmission({.step = kStep, .workers = {kSelf}});
  Answer(0, kNext);

  EXPECT_THAT(step_.Next().push, ElementsAre(ChunkId{1}));
  EXPECT_NE(step_.AdmissionFor(chunks_.chunks()[1], *chunks_.chunks()[1].push), nullptr);
  EXPECT_TRUE(step_.Next().empty());
  Answer(1, kNext);
  EXPECT_EQ(step_.Next().settled, kNext);
}

TEST_F(StepAgreementTest, WorkerThatIsNotAdmittedFetches) {
  UseBackupWorkers();
  Push(0);
  Push(1);
  step_.Next();

  step_.OnAdmission({.step = kStep, .workers = {WorkerId{0}}});
  Answer(0, kNext);

  EXPECT_THAT(step_.Next().fetch, ElementsAre(ChunkId{1}));
  ASSERT_TRUE(chunks_.chunks()[1].fetch.has_value());
  EXPECT_EQ(chunks_.chunks()[1].fetch->step, kNext);
  EXPECT_TRUE(step_.Next().empty());
}

TEST_F(StepAgreementTest, LeadingChunkIsFetchedBeforeTheOthers) {
  UseBackupWorkers();
  Push(0);
  Push(1);
  step_.Next();
  step_.OnAdmission({.step = kStep, .workers = {kSelf}});
  Answer(0, kNext);
  step_.Next();

  Answer(1, Step{7});

  EXPECT_THAT(step_.Next().fetch, ElementsAre(ChunkId{0}));
  chunks_.chunks()[0].fetch.reset();
  chunks_.chunks()[0].push->held_version = Step{7};
  EXPECT_EQ(step_.Next().settled, Step{7});
}

TEST_F(StepAgreementTest, GatedStepAsksWhenServersHoldTheOthers) {
  UseGatedSteps();
  Push(0);
  Push(1);

  EXPECT_FALSE(chunks_.chunks()[1].push->is_held);
  EXPECT_TRUE(step_.Next().empty());
  chunks_.chunks()[1].push->is_taken = true;

  EXPECT_THAT(step_.Next().push, ElementsAre(ChunkId{0}));
}

TEST_F(StepAgreementTest, GatedStepSendsTheDecisionToTheOthers) {
  UseGatedSteps();
  Push(0);
  Push(1);
  chunks_.chunks()[1].push->is_taken = true;
  step_.Next();

  step_.OnAdmission({.step = kStep, .workers = {kSelf}});
  Answer(0, kNext);

  EXPECT_THAT(step_.Next().decide, ElementsAre(ChunkId{1}));
  EXPECT_EQ(step_.decision().step, kStep);
}

TEST_F(StepAgreementTest, FailedStepBeginsAnew) {
  UseBackupWorkers();
  Push(0);
  Push(1);
  step_.Next();

  chunks_.FailStep(absl::UnavailableError("gone"));
  step_.Restart();
  Push(0);

  EXPECT_TRUE(step_.Next().empty());
  Push(1);
  EXPECT_THAT(step_.Next().push, ElementsAre(ChunkId{0}));
}

}  // namespace
}  // namespace pushpull
