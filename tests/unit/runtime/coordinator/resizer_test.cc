// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/resizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/colocated_server.h"
#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;
using Rule = Resizer::LeaveRule;

class ResizerTest : public testing::Test {
 protected:
  explicit ResizerTest(bool has_colocated_servers = false)
      : options_{.settings = {.job = "j", .workers = 2, .servers = 3, .replication = 1},
                 .max_servers = 8,
                 .max_workers = 4,
                 .has_colocated_servers = has_colocated_servers} {
    for (const ServerId server : {kA, kB, kC}) AddServer(server);
    resizer_.TakeTarget();
  }
  void AddServer(ServerId server) {
    registry_.Add(SessionId{server.value() + 1}, RegisterServer{.server = server});
  }
  void RemoveServer(ServerId server) {
    registry_.Remove(SessionId{server.value() + 1});
    resizer_.OnServerGone(server);
  }
  void ResizeServers(uint32_t servers) {
    resizer_.ResizeServers(SteadyTime{}, servers, Step{}, {});
  }
  std::vector<ServerId> Released(Rule rule, std::set<ServerId> drained = {}) {
    return resizer_.TakeReleased(rule, [&](ServerId server) { return drained.contains(server); });
  }

  const JobCoreOptions options_;
  MemberRegistry registry_;
  Resizer resizer_{options_, registry_};
};

TEST_F(ResizerTest, SizesOutsideOfTheManifestAreRejected) {
  EXPECT_TRUE(resizer_.Check({.servers = 8, .workers = 4}).ok());
  EXPECT_THAT(std::string(resizer_.Check({.servers = 9}).message()), HasSubstr("8 (maxReplicas)"));
  EXPECT_THAT(std::string(resizer_.Check({.workers = 0}).message()), HasSubstr("spec.workers"));
  EXPECT_THAT(std::string(resizer_.Check({.servers = 1}).message()),
              HasSubstr("spec.servers.replication"));
  EXPECT_TRUE(resizer_.Check({.global_batch = 2147483647}).ok());
  for (const uint64_t batch : {uint64_t{0}, uint64_t{2147483648}})
    EXPECT_THAT(std::string(resizer_.Check({.global_batch = batch}).message()),
                HasSubstr("spec.workers.globalBatch: must be between 1 and 2147483647"));
}

TEST_F(ResizerTest, ABatchIsPartOfTheSizeThatMembersKeep) {
  EXPECT_EQ(resizer_.desired().global_batch, 0u);
  const uint64_t before = resizer_.desired().revision;

  resizer_.SetGlobalBatch(512);

  EXPECT_EQ(resizer_.desired().global_batch, 512u);
  EXPECT_GT(resizer_.desired().revision, before);
  resizer_.Restore({.revision = 9, .servers = 3, .workers = 2, .global_batch = 64});
  EXPECT_EQ(resizer_.desired().global_batch, 64u);
}

TEST_F(ResizerTest, EachResizeRaisesTheRevision) {
  const uint64_t before = resizer_.desired().revision;

  ResizeServers(2);
  resizer_.ResizeWorkers(1);

  EXPECT_EQ(resizer_.desired().revision, before + 2);
  EXPECT_EQ(resizer_.desired().servers, 2U);
  EXPECT_EQ(resizer_.desired().workers, 1U);
  EXPECT_EQ(resizer_.resizes().back().from, 3U);
}

TEST_F(ResizerTest, ANewCoordinatorTakesTheReportedSize) {
  resizer_.Restore({.revision = 7, .servers = 5, .workers = 4});

  EXPECT_EQ(resizer_.desired().servers, 5U);
  EXPECT_EQ(resizer_.desired().revision, 8U);
}

TEST_F(ResizerTest, OlderReportsOfASizeAreIgnored) {
  resizer_.Restore({.revision = 7, .servers = 5, .workers = 4});
  resizer_.Restore({.revision = 6, .servers = 3, .workers = 4});

  EXPECT_EQ(resizer_.desired().servers, 5U);
  EXPECT_EQ(resizer_.desired().revision, 8U);
}

TEST_F(ResizerTest, WithoutAReportTheManifestsSizeHolds) {
  resizer_.Restore({});

  EXPECT_EQ(resizer_.desired().servers, 3U);
}

TEST_F(ResizerTest, OnlyWorkersWhosePlaceChangesAreNotified) {
  for (uint32_t i = 0; i < 2; ++i)
    registry_.Add(SessionId{50 + i}, RegisterWorker{.worker = WorkerId{i}});

  const auto released = resizer_.ResizeWorkers(1);
  const auto kept = resizer_.ResizeWorkers(2);
  registry_.OnLeaving(WorkerId{1});

  ASSERT_EQ(released.size(), 1U);
  EXPECT_EQ(released[0].first, WorkerId{1});
  EXPECT_TRUE(released[0].second.is_released);
  EXPECT_FALSE(kept.at(0).second.is_released);
  EXPECT_THAT(resizer_.ResizeWorkers(1), IsEmpty());
}

TEST_F(ResizerTest, TheTargetFollowsTheDesiredSize) {
  EXPECT_EQ(resizer_.TakeTarget(), std::nullopt);

  ResizeServers(2);

  EXPECT_THAT(*resizer_.TakeTarget(), UnorderedElementsAre(kA, kB));
  EXPECT_EQ(resizer_.TakeTarget(), std::nullopt);
  EXPECT_TRUE(resizer_.TakeTarget(true).has_value());
}

TEST_F(ResizerTest, UndesiredServersAreReleasedOnceWhenDrained) {
  ResizeServers(2);

  EXPECT_THAT(Released(Rule::kNever), IsEmpty());
  EXPECT_THAT(Released(Rule::kNever, {kA, kC}), ElementsAre(kC));
  EXPECT_THAT(Released(Rule::kNever, {kA, kC}), IsEmpty());
}

// It has been told to end: only its next process can take shards.
TEST_F(ResizerTest, AReleasedServerDesiredAgainIsNoTargetYet) {
  ResizeServers(2);
  resizer_.TakeTarget();
  ASSERT_THAT(Released(Rule::kNever, {kC}), ElementsAre(kC));

  ResizeServers(3);
  const auto meanwhile = resizer_.TakeTarget();
  RemoveServer(kC);

  EXPECT_EQ(meanwhile, std::nullopt);
  EXPECT_THAT(*resizer_.TakeTarget(), UnorderedElementsAre(kA, kB, kC));
}

TEST_F(ResizerTest, AServerThatAskedToLeaveIsDrainedFirst) {
  EXPECT_TRUE(resizer_.RequestDrain(kB));
  EXPECT_FALSE(resizer_.RequestDrain(kB));

  EXPECT_THAT(*resizer_.TakeTarget(), UnorderedElementsAre(kA, kC));
  EXPECT_THAT(Released(Rule::kNever, {kB}), IsEmpty());
  EXPECT_THAT(Released(Rule::kDrained), IsEmpty());
  EXPECT_THAT(Released(Rule::kDrained, {kB}), ElementsAre(kB));
}

TEST_F(ResizerTest, FinalValuesLetAServerLeaveAtOnce) {
  resizer_.RequestDrain(kB);

  EXPECT_THAT(Released(Rule::kAtOnce), ElementsAre(kB));
}

TEST_F(ResizerTest, TheLastThatAskedKeepsTheShards) {
  for (const ServerId server : {kB, kC, kA}) resizer_.RequestDrain(server);
  EXPECT_THAT(*resizer_.TakeTarget(), ElementsAre(kA));

  RemoveServer(kB);
  AddServer(kB);

  EXPECT_THAT(*resizer_.TakeTarget(), ElementsAre(kB));
}

TEST_F(ResizerTest, IndicesOutsideOfTheJobAreRejected) {
  EXPECT_TRUE(resizer_.CheckIndex(kC).ok());
  EXPECT_THAT(std::string(resizer_.CheckIndex(ServerId{3}).message()),
              HasSubstr("has 3 servers, there is no place for server-3"));
  EXPECT_FALSE(resizer_.CheckIndex(WorkerId{2}).ok());
  EXPECT_FALSE(resizer_.CheckIndex(ServerBeside(WorkerId{0})).ok());
}

class ColocatedResizerTest : public ResizerTest {
 protected:
  ColocatedResizerTest() : ResizerTest(true) {}
};

TEST_F(ColocatedResizerTest, ServersBesideWorkersGoWithThem) {
  const ServerId beside = ServerBeside(WorkerId{1});
  AddServer(beside);
  EXPECT_TRUE(resizer_.IsDesired(beside));
  EXPECT_TRUE(resizer_.IsTarget(beside));

  resizer_.ResizeWorkers(1);

  EXPECT_FALSE(resizer_.IsDesired(beside));
  EXPECT_FALSE(resizer_.TakeTarget()->contains(beside));
  EXPECT_THAT(Released(Rule::kNever, {beside}), ElementsAre(beside));
}

}  // namespace
}  // namespace pushpull
