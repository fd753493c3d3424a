// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/row_payload.h"

#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/server/push_checks.h"
#include "runtime/server/shard.h"
#include "runtime/store/row_layout.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kDim = 2;
constexpr uint64_t kChunks = 3;

class RowPayloadTest : public testing::Test {
 protected:
  RowPayloadTest()
      : tensor_{.id = TensorId{0},
                .spec = {.name = "emb",
                         .dims = {80'000, kDim},
                         .optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1},
                         .rows = RowSpec{}},
                .first_chunk = kLeadingChunk,
                .shards = std::vector<ShardId>(kChunks, ShardId{0})},
        shard_(ShardId{0},
               ServerId{0},
               std::array<ChunkPosition, 3>{{{&tensor_, 0}, {&tensor_, 1}, {&tensor_, 2}}}) {}

  Chunk& chunk() { return *shard_.chunks()[1]; }
  // The first so many keys of the chunk, in order.
  static std::vector<uint64_t> KeysOfChunk(size_t count) {
    std::vector<uint64_t> keys;
    for (uint64_t key = 0; keys.size() < count; ++key)
      if (ChunkOfRow(key, kChunks) == 1) keys.push_back(key);
    return keys;
  }
  absl::Status Check(FrameType type, uint32_t payload_bytes) {
    return CheckPayload(chunk(), {.type = type, .payload_bytes = payload_bytes});
  }

  const PlacedTensor tensor_;
  Shard shard_;
};

TEST_F(RowPayloadTest, WholeRowsAndKeysMayCome) {
  for (const FrameType type : {FrameType::kInit, FrameType::kPush}) {
    EXPECT_TRUE(Check(type, 0).ok());
    EXPECT_TRUE(Check(type, 16 * 5).ok());
    EXPECT_FALSE(Check(type, 16 * 5 + 8).ok());
    EXPECT_TRUE(Check(type, 16 * 65'536).ok());
  }
  EXPECT_TRUE(Check(FrameType::kPull, 8 * 65'536).ok());
  EXPECT_FALSE(Check(FrameType::kPull, 12).ok());
  EXPECT_FALSE(Check(FrameType::kPull, 8 * 65'537).ok());
  EXPECT_FALSE(Check(FrameType::kPushPull, 16).ok());
  EXPECT_THAT(std::string(Check(FrameType::kPush, 17).message()),
              AllOf(HasSubstr("tensor \"emb\" chunk 1"), HasSubstr("got 17 bytes")));
}

TEST_F(RowPayloadTest, KeysThatAPeerMayNotSendAreRefused) {
  const std::vector<uint64_t> good = KeysOfChunk(2);
  const std::vector<uint64_t> twice = {good[0], good[0]};
  const std::vector<uint64_t> falling = {good[1], good[0]};
  uint64_t elsewhere = 0;
  while (ChunkOfRow(elsewhere, kChunks) == 1) ++elsewhere;
  const std::vector<uint64_t> foreign = {elsewhere};
  const auto check = [&](const std::vector<uint64_t>& keys) {
    return CheckRowKeys(chunk(), FrameType::kPull, std::as_bytes(std::span(keys)));
  };

  EXPECT_TRUE(check(good).ok());
  for (const auto& keys : {twice, falling, foreign}) {
    EXPECT_TRUE(absl::IsInvalidArgument(check(keys)));
    EXPECT_THAT(std::string(check(keys).message()), HasSubstr("tensor \"emb\" chunk 1"));
  }
}

TEST_F(RowPayloadTest, APullIsAnsweredInTheOrderOfItsKeys) {
  const std::vector<uint64_t> keys = KeysOfChunk(3);
  HostBuffer rows = *HostBuffer::Uninitialized(2 * SparseRowBytes(kDim));
  const MutableSparseRows out = SplitSparseRows(rows.bytes(), kDim);
  std::copy(keys.begin(), keys.begin() + 2, out.keys.begin());
  std::ranges::copy(std::vector<float>{1, 2, 3, 4}, out.values.begin());
  ASSERT_TRUE(chunk().Initialize(std::move(rows), 0).ok());
  Reception reception;
  reception.buffer = *HostBuffer::Uninitialized(2 * sizeof(uint64_t));
  const std::vector<uint64_t> asked = {keys[1], keys[2]};
  std::ranges::copy(std::as_bytes(std::span(asked)), reception.buffer.bytes().begin());

  Waiter waiter;
  waiter.row_keys =
      *TakeRowKeys(chunk(), std::move(reception), {.type = FrameType::kPull, .payload_bytes = 16});
  const Payload answer = *GatherRows(chunk(), waiter);

  const std::span<const float> values(reinterpret_cast<const float*>(answer.bytes.data()), 4);
  EXPECT_THAT(values, ElementsAre(3, 4, 0, 0));
}

TEST_F(RowPayloadTest, KeysWithoutMemoryAreAskedForAgain) {
  const absl::Status status =
      TakeRowKeys(chunk(), {}, {.type = FrameType::kPull, .payload_bytes = 16}).status();

  EXPECT_TRUE(absl::IsUnavailable(status));
}

}  // namespace
}  // namespace pushpull
