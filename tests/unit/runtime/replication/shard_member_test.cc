// SPDX-License-Identifier: Apache-2.0
//
// A member's decisions, one rule a test; whole clusters are in
// tests/integration/sim_schedule_test.cc.
#include "runtime/replication/shard_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr ServerId kA{0};
constexpr ServerId kB{1};
constexpr ServerId kC{2};
constexpr size_t kChunks = 2;
using Kind = OutgoingStreams::Frame::Kind;
using Via = ShardMember::Via;

Epoch At(uint64_t counter) {
  return {Term{1}, counter};
}

ReplicaSet Entry(uint64_t counter,
                 std::optional<ServerId> primary,
                 std::vector<ServerId> followers,
                 std::vector<ServerId> learners = {}) {
  return {At(counter), primary, std::move(followers), std::move(learners)};
}

std::vector<ChunkStamp> Stamps(const ShardMember& member, uint64_t version) {
  std::vector<ChunkStamp> stamps;
  for (size_t i = 0; i < kChunks; ++i) stamps.push_back({Step{version}, member.chunk_epoch(i)});
  return stamps;
}

std::vector<Kind> Kinds(const std::vector<OutgoingStreams::Frame>& frames) {
  std::vector<Kind> kinds;
  for (const OutgoingStreams::Frame& frame : frames) kinds.push_back(frame.kind);
  return kinds;
}

// A is the primary of a first entry, B its follower; B's stream is open and caught up.
class ShardMemberTest : public testing::Test {
 protected:
  ShardMemberTest() {
    const ReplicaSet first = Entry(1, kA, {kB});
    a_.Install(first, Via::kFirst);
    b_.Install(first, Via::kFirst);
    Connect();
  }

  void Connect() {
    const uint64_t stream = b_.incoming().Join();
    ASSERT_TRUE(a_.Open(kB, a_.entry().epoch, stream, Stamps(b_, 0), Stamps(a_, 0)));
    Deliver();
  }

  // Everything that A has for B beside entries arrives and is answered.
  void Deliver() {
    for (const OutgoingStreams::Frame& frame : a_.outgoing().NextFrames(kB)) {
      ASSERT_EQ(b_.Judge(kA, frame.at), IncomingStream::Verdict::kTake);
      std::optional<StreamAck> ack;
      if (frame.kind == Kind::kStart) ack = b_.TakeStart(a_.seq());
      if (frame.kind == Kind::kCopy) ack = b_.TakeCopy(frame.chunk, a_.chunk_epoch(frame.chunk));
      if (frame.kind == Kind::kCaughtUp) ack = b_.TakeCaughtUp(a_.entry().epoch, a_.seq());
      if (ack) a_.OnAck(kB, *ack);
    }
  }

  ShardMember a_{kA, kChunks};
  ShardMember b_{kB, kChunks};
};

TEST_F(ShardMemberTest, AVersionIsPublishedWhenEveryFollowerHasItsEntry) {
  const uint64_t seq = a_.Append(0);
  const std::optional<StreamPosition> at = a_.outgoing().PlaceEntry(kB, 0);
  ASSERT_TRUE(at);
  EXPECT_FALSE(a_.MayPublish(0));
  EXPECT_TRUE(a_.MayPublish(1));

  ASSERT_EQ(b_.Judge(kA, *at), IncomingStream::Verdict::kTake);
  a_.OnAck(kB, b_.TakeEntry(0, a_.entry().epoch, seq));

  EXPECT_TRUE(a_.MayPublish(0));
}

TEST_F(ShardMemberTest, AGapInTheStreamRejoinsAndOldFramesAreIgnored) {
  const uint64_t seq = a_.Append(0);
  const StreamPosition lost = *a_.outgoing().PlaceEntry(kB, 0);
  a_.Append(1);
  const StreamPosition later = *a_.outgoing().PlaceEntry(kB, 1);

  EXPECT_EQ(b_.Judge(kA, later), IncomingStream::Verdict::kJoinAgain);
  b_.TakeEntry(0, a_.entry().epoch, seq);
  EXPECT_EQ(b_.Judge(kA, lost), IncomingStream::Verdict::kIgnore);
  EXPECT_EQ(b_.Judge(kC, later), IncomingStream::Verdict::kIgnore);
}

TEST_F(ShardMemberTest, OnlyChunksWhoseStampsDifferAreCopied) {
  a_.Append(1);  // B has no part in it
  const uint64_t stream = b_.incoming().Join();
  std::vector<ChunkStamp> ours = Stamps(a_, 0);
  ours[1].version = Step{1};

  ASSERT_TRUE(a_.Open(kB, At(1), stream, Stamps(b_, 0), ours));

  const auto frames = a_.outgoing().NextFrames(kB);
  EXPECT_THAT(Kinds(frames), ElementsAre(Kind::kStart, Kind::kCopy, Kind::kCaughtUp));
  EXPECT_EQ(frames[1].chunk, 1U);
}

TEST_F(ShardMemberTest, AnEntryOfAChunkThatIsStillToBeCopiedIsNotSent) {
  ShardMember primary(kA, 8);
  primary.Install(Entry(1, kA, {}, {kB}), Via::kFirst);
  const std::vector<ChunkStamp> nothing(8);
  std::vector<ChunkStamp> ours(8, ChunkStamp{Step{1}, At(1)});
  ASSERT_TRUE(primary.Open(kB, At(1), 1, nothing, ours));
  const auto under_way = primary.outgoing().NextFrames(kB);
  ASSERT_THAT(under_way, SizeIs(1 + OutgoingStreams::kCopiesUnderWayMax));

  primary.Append(7);
  primary.Append(0);

  EXPECT_FALSE(primary.outgoing().PlaceEntry(kB, 7));  // its copy will have the entry in it
  EXPECT_TRUE(primary.outgoing().PlaceEntry(kB, 0));   // its copy is on its way
}

TEST_F(ShardMemberTest, AnOlderJoinThatArrivesLateIsRefused) {
  const uint64_t older = b_.incoming().Join();
  const uint64_t newer = b_.incoming().Join();
  ASSERT_TRUE(a_.Open(kB, At(1), newer, Stamps(b_, 0), Stamps(a_, 0)));

  EXPECT_FALSE(a_.Open(kB, At(1), older, Stamps(b_, 0), Stamps(a_, 0)));
  EXPECT_FALSE(a_.Open(kC, At(1), 1, Stamps(b_, 0), Stamps(a_, 0)));
}

TEST_F(ShardMemberTest, APromotedLearnerIsFullWhenItIsConfirmed) {
  ShardMember c(kC, kChunks);
  c.Install(Entry(2, kA, {kB}, {kC}), Via::kCoordinator);
  c.incoming().Join();
  c.TakeStart(0);
  c.TakeCaughtUp(At(2), 0);
  ASSERT_FALSE(c.is_full());

  const ShardMember::Change change = c.Install(Entry(3, kA, {kB, kC}), Via::kCoordinator);

  EXPECT_FALSE(change.must_join);  // the stream goes on
  EXPECT_FALSE(c.is_full());
  EXPECT_TRUE(c.TakeCaughtUp(At(3), 0)->is_caught_up);
  EXPECT_TRUE(c.is_full());
}

TEST_F(ShardMemberTest, AnEarlyConfirmationIsAnsweredWithItsEntry) {
  ShardMember c(kC, kChunks);
  c.Install(Entry(2, kA, {kB}, {kC}), Via::kCoordinator);
  c.incoming().Join();
  c.TakeStart(0);

  EXPECT_FALSE(c.TakeCaughtUp(At(3), 5));
  EXPECT_FALSE(c.is_full());
  const ShardMember::Change change = c.Install(Entry(3, kA, {kB, kC}), Via::kCoordinator);

  ASSERT_TRUE(change.late_answer);
  EXPECT_TRUE(change.late_answer->is_caught_up);
  EXPECT_EQ(change.late_answer->seq, 5U);
  EXPECT_TRUE(c.is_full());
}

TEST_F(ShardMemberTest, AStreamOutlivesAnEntryUnderWhichThePrimaryGoesOn) {
  const ReplicaSet next = Entry(2, kA, {kB}, {kC});
  a_.Install(next, Via::kCoordinator);
  const auto frames = a_.outgoing().NextFrames(kB);

  EXPECT_THAT(Kinds(frames), ElementsAre(Kind::kCaughtUp));
  EXPECT_EQ(b_.Judge(kA, frames[0].at), IncomingStream::Verdict::kTake);
  EXPECT_TRUE(a_.MayPublish(0));
}

TEST_F(ShardMemberTest, APromisedFailoverFencesTheOldPrimary) {
  a_.Append(0);
  const StreamPosition at = *a_.outgoing().PlaceEntry(kB, 0);

  b_.Install(Entry(2, std::nullopt, {kA, kB}), Via::kCoordinator);

  EXPECT_EQ(b_.Judge(kA, at), IncomingStream::Verdict::kIgnore);
  EXPECT_TRUE(b_.is_full());
}

TEST_F(ShardMemberTest, ANewPrimaryPublishesWhenFollowersHaveItsLog) {
  b_.Install(Entry(2, std::nullopt, {kA, kB}), Via::kCoordinator);

  const ShardMember::Change change = b_.Install(Entry(3, kB, {kA}), Via::kCoordinator);

  EXPECT_TRUE(change.is_promoted);
  EXPECT_FALSE(b_.MayPublish(0));
  EXPECT_FALSE(b_.MayPublish(1));
}

TEST_F(ShardMemberTest, APrimaryWithoutTheStateIsNotPromoted) {
  ShardMember c(kC, kChunks);

  const ShardMember::Change change = c.Install(Entry(2, kC, {}), Via::kCoordinator);

  EXPECT_TRUE(change.is_taken);
  EXPECT_FALSE(c.is_primary());
  EXPECT_FALSE(c.is_full());
}

TEST_F(ShardMemberTest, AHandoverIsDueWhenTheNextPrimaryHasTheLog) {
  const uint64_t seq = a_.Append(0);
  const StreamPosition at = *a_.outgoing().PlaceEntry(kB, 0);
  const ReplicaSet next = Entry(2, kB, {kA});
  ASSERT_FALSE(a_.BeginHandover(At(7), next));
  ASSERT_TRUE(a_.BeginHandover(At(1), next));
  EXPECT_FALSE(a_.is_open());
  EXPECT_FALSE(a_.HandoverDue());

  ASSERT_EQ(b_.Judge(kA, at), IncomingStream::Verdict::kTake);
  a_.OnAck(kB, b_.TakeEntry(0, At(1), seq));

  EXPECT_EQ(a_.HandoverDue(), next);
  EXPECT_TRUE(a_.Install(next, Via::kCoordinator).is_demoted);
  EXPECT_TRUE(b_.Install(next, Via::kHandedOver).is_promoted);
}

TEST_F(ShardMemberTest, ARemovedMembersStateHasNoStamps) {
  a_.Append(0);
  b_.TakeEntry(0, At(1), 1);

  b_.Install(Entry(2, kA, {}), Via::kCoordinator);

  EXPECT_EQ(b_.chunk_epoch(0), Epoch{});
  EXPECT_EQ(b_.seq(), 0U);
  EXPECT_FALSE(b_.is_full());
}

TEST_F(ShardMemberTest, EntriesOfLowerEpochsChangeNothing) {
  a_.Install(Entry(5, kA, {kB}), Via::kCoordinator);

  EXPECT_FALSE(a_.Install(Entry(4, kC, {}), Via::kCoordinator).is_taken);
  EXPECT_TRUE(a_.is_primary());
}

TEST_F(ShardMemberTest, AMemberRejectsEntriesBelowItsPromisedTerm) {
  a_.Promise(Term{2});

  EXPECT_FALSE(a_.Install(Entry(2, kB, {kA}), Via::kCoordinator).is_taken);
  EXPECT_TRUE(a_.is_primary());
  EXPECT_TRUE(a_.Install({{Term{2}, 1}, kB, {kA}}, Via::kCoordinator).is_taken);
}

TEST_F(ShardMemberTest, APromisedTermCancelsAnOlderHandover) {
  ASSERT_TRUE(a_.BeginHandover(At(1), Entry(2, kB, {kA})));
  ASSERT_TRUE(a_.HandoverDue().has_value());

  a_.Promise(Term{2});

  EXPECT_FALSE(a_.HandoverDue().has_value());
}

TEST_F(ShardMemberTest, ARebuiltPrimaryHasStampsThatNoMemberHas) {
  ShardMember c(kC, kChunks);
  c.Install(Entry(2, std::nullopt, {kA}), Via::kCoordinator);

  const ShardMember::Change change = c.Install(Entry(3, kC, {}), Via::kRebuilt);

  EXPECT_TRUE(change.is_promoted);
  EXPECT_TRUE(c.is_open());
  EXPECT_TRUE(c.is_full());
  // Whoever held it before joins it like anyone and is sent every chunk.
  c.Install(Entry(4, kC, {}, {kA}), Via::kCoordinator);
  ASSERT_TRUE(c.Open(kA, At(4), 1, Stamps(a_, 5), Stamps(c, 5)));
  EXPECT_THAT(Kinds(c.outgoing().NextFrames(kA)),
              ElementsAre(Kind::kStart, Kind::kCopy, Kind::kCopy, Kind::kCaughtUp));
}

}  // namespace
}  // namespace pushpull
