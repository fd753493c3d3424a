// SPDX-License-Identifier: Apache-2.0
//
// Who sums which chunk in which step, and which tensors groups sum.
#include "runtime/consistency/worker_group.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/consistency/sample_queue.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kLargeChunk = 1 << 20;
constexpr uint64_t kSmallChunk = 1 << 10;

GroupMember InGroup(uint32_t worker, uint64_t from_step = 0) {
  return {.worker = WorkerId{worker},
          .incarnation = Incarnation{worker + 100},
          .from_step = Step{from_step},
          .address = "127.0.0.1:7180"};
}

std::vector<GroupMember> FirstInGroup(size_t count) {
  std::vector<GroupMember> members;
  for (uint32_t i = 0; i < count; ++i) members.push_back(InGroup(i));
  return members;
}

WorkerGroup GroupOf(std::vector<GroupMember> members, std::vector<uint64_t> chunks) {
  WorkerGroup group;
  group.SetMembers(std::move(members));
  group.SetChunks(std::move(chunks));
  return group;
}

std::vector<uint64_t> Alternating(size_t count) {
  std::vector<uint64_t> chunks;
  for (size_t i = 0; i < count; ++i) chunks.push_back(i % 2 == 0 ? kLargeChunk : kSmallChunk);
  return chunks;
}

std::vector<WorkerId> SummersOf(const WorkerGroup& group, size_t chunks, Step step) {
  std::vector<WorkerId> summers;
  for (uint64_t i = 0; i < chunks; ++i) summers.push_back(group.SummerOf(ChunkId{i}, step).worker);
  return summers;
}

// What each member sums, in bytes.
std::map<WorkerId, uint64_t> BytesBySummer(const WorkerGroup& group,
                                           const std::vector<uint64_t>& chunks) {
  std::map<WorkerId, uint64_t> bytes;
  const std::vector<WorkerId> summers = SummersOf(group, chunks.size(), Step{0});
  for (size_t i = 0; i < chunks.size(); ++i) bytes[summers[i]] += chunks[i];
  return bytes;
}

TEST(WorkerGroupTest, MembersAgreeWhateverTheyKnewBefore) {
  const std::vector<uint64_t> chunks = Alternating(20);
  const WorkerGroup fresh = GroupOf(FirstInGroup(3), chunks);
  WorkerGroup other =
      GroupOf(FirstInGroup(3), {kSmallChunk, kLargeChunk, kLargeChunk, kSmallChunk});
  SummersOf(other, 4, Step{0});
  other.SetMembers(FirstInGroup(5));
  SummersOf(other, 4, Step{0});

  other.SetChunks(chunks);
  other.SetMembers(FirstInGroup(3));

  EXPECT_EQ(SummersOf(other, 20, Step{0}), SummersOf(fresh, 20, Step{0}));
}

TEST(WorkerGroupTest, BytesAreSpreadEvenly) {
  std::vector<uint64_t> growing(150);
  std::iota(growing.begin(), growing.end(), uint64_t{1});
  for (const std::vector<uint64_t>& chunks :
       {Alternating(300), growing, std::vector<uint64_t>(130, kLargeChunk)}) {
    for (const size_t members : {size_t{2}, size_t{3}, size_t{4}, kGroupMembersMax}) {
      SCOPED_TRACE(members);
      const auto bytes = BytesBySummer(GroupOf(FirstInGroup(members), chunks), chunks);

      ASSERT_THAT(bytes, SizeIs(members));
      const auto [least, most] =
          std::ranges::minmax_element(bytes, {}, [](const auto& summed) { return summed.second; });
      EXPECT_LE(most->second - least->second, *std::ranges::max_element(chunks));
    }
  }
}

TEST(WorkerGroupTest, SmallChunksMakeUpForALargeOne) {
  std::vector<uint64_t> chunks(3 * (kLargeChunk / kSmallChunk), kSmallChunk);
  chunks.insert(chunks.begin() + 100, kLargeChunk);

  const auto bytes = BytesBySummer(GroupOf(FirstInGroup(4), chunks), chunks);

  ASSERT_THAT(bytes, SizeIs(4));
  for (const auto& [worker, summed] : bytes) EXPECT_EQ(summed, kLargeChunk) << ToString(worker);
}

TEST(WorkerGroupTest, AMemberIsLeftOutOfStepsBeforeItsFirst) {
  const std::vector<uint64_t> chunks = Alternating(12);
  const WorkerGroup group = GroupOf({InGroup(3), InGroup(5, 10), InGroup(8)}, chunks);
  const WorkerGroup without = GroupOf({InGroup(3), InGroup(8)}, chunks);
  const auto ids_in = [&](uint64_t step) {
    std::vector<WorkerId> ids;
    for (const GroupMember* member : group.MembersIn(Step{step})) ids.push_back(member->worker);
    return ids;
  };

  EXPECT_THAT(ids_in(9), ElementsAre(WorkerId{3}, WorkerId{8}));
  EXPECT_THAT(ids_in(10), ElementsAre(WorkerId{3}, WorkerId{5}, WorkerId{8}));
  EXPECT_EQ(SummersOf(group, 12, Step{9}), SummersOf(without, 12, Step{9}));
  EXPECT_THAT(SummersOf(group, 12, Step{10}), testing::Contains(WorkerId{5}));
  EXPECT_EQ(SummersOf(group, 12, Step{9}), SummersOf(without, 12, Step{9}));
}

TEST(WorkerGroupTest, FewerThanTwoMembersSumNothing) {
  const WorkerGroup nobody = GroupOf({}, {kLargeChunk});
  const WorkerGroup one = GroupOf({InGroup(4)}, {kLargeChunk});
  const WorkerGroup one_before_ten = GroupOf({InGroup(4), InGroup(5, 10)}, {kLargeChunk});
  const ChunkId chunk{0};

  EXPECT_FALSE(nobody.IsJoint(chunk, Step{0}));
  EXPECT_THAT(nobody.MembersIn(Step{0}), IsEmpty());
  EXPECT_FALSE(one.IsJoint(chunk, Step{0}));
  EXPECT_FALSE(one_before_ten.IsJoint(chunk, Step{9}));
  EXPECT_TRUE(one_before_ten.IsJoint(chunk, Step{10}));
}

TEST(WorkerGroupTest, OnlyKnownChunksWithBytesAreJoint) {
  WorkerGroup group = GroupOf(FirstInGroup(2), {kLargeChunk, 0, kSmallChunk});

  EXPECT_TRUE(group.IsJoint(ChunkId{0}, Step{0}));
  EXPECT_FALSE(group.IsJoint(ChunkId{1}, Step{0}));
  EXPECT_TRUE(group.IsJoint(ChunkId{2}, Step{0}));
  EXPECT_FALSE(group.IsJoint(ChunkId{3}, Step{0}));

  group.SetMembers({InGroup(0)});
  EXPECT_FALSE(group.IsJoint(ChunkId{0}, Step{0}));
}

TEST(WorkerGroupTest, TensorsOfPlainFloatsAreSummed) {
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum, Reduction::kMax}) {
    EXPECT_TRUE(IsSummedInGroups({.name = "w", .dims = {4}, .reduction = reduction}))
        << static_cast<int>(reduction);
  }
}

TEST(WorkerGroupTest, TensorsThatNeedEachWorkersPushAreNot) {
  const TensorSpec plain{.name = "w", .dims = {4, 4}};
  std::map<std::string, TensorSpec> others;
  for (const char* what : {"half", "bfloat16", "codec", "clipped", "rows", "samples"})
    others[what] = plain;
  others["half"].dtype = DType::kFloat16;
  others["bfloat16"].dtype = DType::kBFloat16;
  others["codec"].codec = Codec::kInt8;
  others["clipped"].clip_norm = 1;
  others["rows"].rows = RowSpec{};
  others["samples"].name = std::string(kSampleQueueTensor);

  ASSERT_TRUE(IsSummedInGroups(plain));
  for (const auto& [what, tensor] : others) EXPECT_FALSE(IsSummedInGroups(tensor)) << what;
}

}  // namespace
}  // namespace pushpull
