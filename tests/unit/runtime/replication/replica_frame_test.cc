// SPDX-License-Identifier: Apache-2.0
#include "runtime/replication/replica_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

const ReplicaSet kEntry{{Term{2}, 7}, ServerId{3}, {ServerId{1}, ServerId{4}}, {ServerId{5}}};

TEST(ReplicaFrameTest, AnEntryIsReadBack) {
  const auto decoded = DecodeShardEntry(EncodeShardEntry({ShardId{9}, kEntry}));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->shard, ShardId{9});
  EXPECT_EQ(decoded->entry, kEntry);
}

TEST(ReplicaFrameTest, AnEntryWithoutPrimaryIsReadBack) {
  ReplicaSet entry = kEntry;
  entry.primary.reset();

  const auto decoded = DecodeShardEntry(EncodeShardEntry({ShardId{9}, entry}));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->entry, entry);
}

TEST(ReplicaFrameTest, AJoinIsReadBack) {
  const JoinShardMeta join{
      .shard = ShardId{8}, .stream = 4, .is_handover = true, .entry = kEntry, .seq = 12};

  const auto decoded = DecodeJoinShard(EncodeJoinShard(join));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->shard, join.shard);
  EXPECT_EQ(decoded->stream, 4U);
  EXPECT_TRUE(decoded->is_handover);
  EXPECT_EQ(decoded->entry, kEntry);
  EXPECT_EQ(decoded->seq, 12U);
}

TEST(ReplicaFrameTest, StampsAreReadBackAndHalfAStampIsRefused) {
  const std::vector<ChunkStamp> stamps{{Step{3}, {Term{1}, 2}}, {Step{0}, {}}};
  std::vector<std::byte> bytes = EncodeStamps(stamps);

  EXPECT_EQ(DecodeStamps(bytes).value(), stamps);
  bytes.pop_back();
  EXPECT_EQ(DecodeStamps(bytes).status().code(), absl::StatusCode::kDataLoss);
}

TEST(ReplicaFrameTest, AStreamFrameIsReadBackAndRefusedAtEveryOtherLength) {
  const StreamMeta meta{.shard = ShardId{6},
                        .at = {5, 17},
                        .seq = 20,
                        .kind = LogEntryKind::kSkip,
                        .gradient_scale = 0.25,
                        .contributors = {WorkerId{0}, WorkerId{3}, WorkerId{1023}},
                        .update = WorkerClock{WorkerId{3}, Step{99}},
                        .advance_to = Step{1000},
                        .part = 1,
                        .parts = 3,
                        .updates = 11,
                        .chunk_epoch = {Term{2}, 4},
                        .digest = ~uint64_t{9},
                        .clip_scale = 0.125,
                        .has_gradient = false};
  const std::vector<std::byte> bytes = EncodeStreamMeta(meta);

  const auto decoded = DecodeStreamMeta(bytes);

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->at.stream, 5U);
  EXPECT_EQ(decoded->at.position, 17U);
  EXPECT_EQ(decoded->seq, 20U);
  EXPECT_EQ(decoded->kind, LogEntryKind::kSkip);
  EXPECT_EQ(decoded->gradient_scale, 0.25);
  EXPECT_EQ(decoded->contributors, meta.contributors);
  EXPECT_EQ(decoded->update, meta.update);
  EXPECT_EQ(decoded->advance_to, meta.advance_to);
  EXPECT_EQ(decoded->part, 1U);
  EXPECT_EQ(decoded->parts, 3U);
  EXPECT_EQ(decoded->updates, 11U);
  EXPECT_EQ(decoded->chunk_epoch, meta.chunk_epoch);
  EXPECT_EQ(decoded->digest, meta.digest);
  EXPECT_EQ(decoded->clip_scale, 0.125);
  EXPECT_FALSE(decoded->has_gradient);
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(DecodeStreamMeta(std::span(bytes).first(length)).ok()) << length;
}

TEST(ReplicaFrameTest, ClocksAreReadBack) {
  const std::vector<WorkerClock> clocks = {{WorkerId{0}, Step{7}}, {WorkerId{5}, Step{1ULL << 40}}};
  const std::vector<std::byte> bytes = EncodeClocks(clocks);

  const auto decoded = DecodeClocks(bytes);

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, clocks);
  EXPECT_FALSE(DecodeClocks(std::span(bytes).first(bytes.size() - 1)).ok());
}

TEST(ReplicaFrameTest, AnAcknowledgementIsReadBack) {
  const ReplicateAckMeta meta{.shard = ShardId{2}, .ack = {{1, 2}, 3, true}};

  const auto decoded = DecodeReplicateAck(EncodeReplicateAck(meta));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->ack.at.position, 2U);
  EXPECT_EQ(decoded->ack.seq, 3U);
  EXPECT_TRUE(decoded->ack.is_caught_up);
}

TEST(ReplicaFrameTest, AnOutOfRangeShardIsRejected) {
  EXPECT_FALSE(DecodeShardEntry(EncodeShardEntry({ShardId{kShardCount}, kEntry})).ok());
  EXPECT_FALSE(DecodeReplicateAck(EncodeReplicateAck({ShardId{kShardCount}, {}})).ok());
}

}  // namespace
}  // namespace pushpull
