// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/request_table.h"

#include <array>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/shard/chunk.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

ChunkRequest MakeRequest(FrameType type, Step step, std::span<std::byte> target = {}) {
  auto pending = std::make_shared<PendingOperation>("what");
  pending->Expect(ServerId{3}, 1);
  return {.type = type,
          .step = step,
          .target = target,
          .priority = 0,
          .server = ServerId{3},
          .pending = pending};
}

class RequestTableTest : public testing::Test {
 protected:
  RequestTableTest() {
    const auto floats = static_cast<int64_t>(kChunkBytes / sizeof(float));
    table_.SetTensors(
        {{.spec = {.name = "a", .dims = {floats + 1}}, .shards = {ShardId{0}, ShardId{1}}},
         {.spec = {.name = "b", .dims = {2}}, .shards = {ShardId{2}}}});
  }

  ClientChunk& first() { return table_.chunks().front(); }

  RequestTable table_;
  std::array<std::byte, 8> target_{};
};

TEST_F(RequestTableTest, TensorIsCutIntoChunks) {
  const std::span<ClientChunk> chunks = table_.ChunksOf(0);

  ASSERT_EQ(chunks.size(), 2);
  EXPECT_EQ(chunks[0].bytes, kChunkBytes);
  EXPECT_EQ(chunks[1].offset, kChunkBytes);
  EXPECT_EQ(chunks[1].bytes, sizeof(float));
  EXPECT_EQ(table_.IdOf(table_.ChunksOf(1).front()), ChunkId{2});
  EXPECT_EQ(table_.Find(ChunkId{3}), nullptr);
}

// A chunk has as many values as its float32 ones are 256 KiB.
TEST(RequestTableOfHalvesTest, ChunksHaveAsManyValues) {
  const auto floats = static_cast<int64_t>(kChunkBytes / sizeof(float));
  RequestTable table;
  table.SetTensors({{.spec = {.name = "h", .dims = {floats + 1}, .dtype = DType::kBFloat16},
                     .shards = {ShardId{0}, ShardId{1}}}});
  const std::span<ClientChunk> chunks = table.ChunksOf(0);

  EXPECT_EQ(chunks[0].bytes, kChunkBytes / 2);
  EXPECT_EQ(chunks[1].offset, kChunkBytes / 2);
  EXPECT_EQ(chunks[1].bytes, 2U);
  EXPECT_EQ(chunks[1].tensor_bytes, kChunkBytes / 2 + 2);
  EXPECT_EQ(chunks[1].dtype, DType::kBFloat16);
}

TEST_F(RequestTableTest, AnswerOfAPushHasTheNumberOfTheNextStep) {
  first().push = MakeRequest(FrameType::kPushPull, Step{4}, target_);

  EXPECT_EQ(RequestTable::AnsweredBy(first(), {.payload_bytes = 8, .clock = Step{5}}),
            &ClientChunk::push);
  EXPECT_EQ(RequestTable::AnsweredBy(first(), {.payload_bytes = 8, .clock = Step{4}}), nullptr);
  EXPECT_EQ(RequestTable::AnsweredBy(first(), {.payload_bytes = 0, .clock = Step{5}}), nullptr);
}

TEST_F(RequestTableTest, PushThatIsHeldBackHasNoAnswer) {
  first().push = MakeRequest(FrameType::kPushPull, Step{4}, target_);
  first().push->is_held = true;

  EXPECT_EQ(RequestTable::AnsweredBy(first(), {.payload_bytes = 8, .clock = Step{5}}), nullptr);
}

TEST_F(RequestTableTest, AnswerOfAReadRepeatsItsNumber) {
  first().pull = MakeRequest(FrameType::kPull, Step{2}, target_);
  first().pull->base_version = table_.BeginRead();
  first().fetch = MakeRequest(FrameType::kFetch, Step{2}, target_);
  first().fetch->base_version = table_.BeginRead();

  const auto answered_by = [&](Step version, Step read) {
    return RequestTable::AnsweredBy(first(),
                                    {.step = version, .payload_bytes = 8, .base_version = read});
  };

  EXPECT_EQ(answered_by(Step{2}, Step{1}), &ClientChunk::pull);
  EXPECT_EQ(answered_by(Step{3}, Step{2}), &ClientChunk::fetch);
  EXPECT_EQ(answered_by(Step{1}, Step{1}), nullptr);
  EXPECT_EQ(answered_by(Step{2}, Step{3}), nullptr);
}

TEST_F(RequestTableTest, LowestVersionIsOverAllChunks) {
  table_.RaiseVersions(Step{3});
  first().version = Step{2};

  EXPECT_EQ(table_.LowestVersion(), Step{2});
  table_.RaiseVersions(Step{3});
  EXPECT_EQ(table_.LowestVersion(), Step{3});
}

TEST_F(RequestTableTest, FailureNamesOperationAndServers) {
  first().push = MakeRequest(FrameType::kPush, Step{4});
  const std::shared_ptr<PendingOperation> pending = first().push->pending;

  const absl::Status status = table_.FailAll(absl::UnavailableError("the job has failed"));

  EXPECT_THAT(std::string(status.message()), HasSubstr("what: no answer from server-3"));
  EXPECT_TRUE(pending->is_done());
  EXPECT_FALSE(table_.has_pushes());
}

}  // namespace
}  // namespace pushpull
