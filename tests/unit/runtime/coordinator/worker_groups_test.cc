// SPDX-License-Identifier: Apache-2.0
//
// Who sums with whom, and who is told what.
#include "runtime/coordinator/worker_groups.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

using WorkerIndices = std::vector<uint32_t>;

struct HostAndRack {
  std::string node = {};
  std::string rack = {};
};

Incarnation IncarnationOf(uint32_t worker, uint64_t process) {
  return Incarnation{1000 * process + worker};
}

std::string AddressOf(uint32_t worker) {
  return absl::StrCat("10.0.0.", worker, ":7180");
}

class WorkerGroupsTest : public testing::Test {
 protected:
  void Register(uint32_t worker, const HostAndRack& place, uint64_t process = 1) {
    registry_.Add(SessionId{++last_session_},
                  RegisterWorker{.worker = WorkerId{worker},
                                 .incarnation = IncarnationOf(worker, process),
                                 .rack = place.rack,
                                 .group_address = AddressOf(worker),
                                 .node = place.node});
  }
  // Workers register in the order of their index.
  void Join(uint32_t worker, const HostAndRack& place) {
    Register(worker, place);
    view_.members.push_back({.worker = WorkerId{worker},
                             .incarnation = IncarnationOf(worker, 1),
                             .from_step = Step{worker},
                             .end_step = {}});
  }
  void Disconnect(uint32_t worker) { registry_.Remove(registry_.Find(WorkerId{worker})->session); }
  void Reconnect(uint32_t worker, const HostAndRack& place, uint64_t process = 1) {
    Disconnect(worker);
    Register(worker, place, process);
  }
  void Remove(uint32_t worker) {
    Disconnect(worker);
    std::erase_if(view_.members,
                  [&](const ViewMember& member) { return member.worker == WorkerId{worker}; });
  }
  ViewMember& MemberAt(size_t position) { return view_.members[position]; }

  // By worker: with whom it sums from now on, for those who are told so.
  std::map<uint32_t, WorkerIndices> Update(WorkerGroups& groups) {
    std::map<uint32_t, WorkerIndices> told;
    for (const auto& [worker, group] : groups.Update(view_, registry_)) {
      EXPECT_FALSE(told.contains(worker.value())) << "told twice";
      WorkerIndices& members = told[worker.value()];
      for (const GroupMember& member : group.members) members.push_back(member.worker.value());
    }
    return told;
  }

  View view_;
  MemberRegistry registry_;
  uint64_t last_session_ = 0;
};

// What workers 0 to 2 are told if they sum together, all or all but 1.
auto AllThree() {
  const WorkerIndices all{0, 1, 2};
  return ElementsAre(Pair(0, all), Pair(1, all), Pair(2, all));
}
auto AllBut1() {
  const WorkerIndices both{0, 2};
  return ElementsAre(Pair(0, both), Pair(1, WorkerIndices{}), Pair(2, both));
}

TEST_F(WorkerGroupsTest, WorkersOfOneHostSumTogether) {
  WorkerGroups groups(LocalReduce::kHost);
  for (const auto& [worker, node] :
       {std::pair{0U, "a"}, {1U, "b"}, {2U, "a"}, {3U, "b"}, {4U, "c"}})
    Join(worker, {.node = node, .rack = "r"});

  EXPECT_THAT(Update(groups),
              ElementsAre(Pair(0, WorkerIndices{0, 2}),
                          Pair(1, WorkerIndices{1, 3}),
                          Pair(2, WorkerIndices{0, 2}),
                          Pair(3, WorkerIndices{1, 3}),
                          Pair(4, WorkerIndices{})));
}

TEST_F(WorkerGroupsTest, ServersKnowTheSameGroupsFromEveryCoordinator) {
  Join(0, {.node = "a", .rack = "r"});
  Join(1, {.node = "b", .rack = "r"});
  Join(2, {.node = "a", .rack = ""});
  const std::map<WorkerId, uint64_t> by_host = GroupsByPlace(registry_, LocalReduce::kHost);
  const std::map<WorkerId, uint64_t> by_rack = GroupsByPlace(registry_, LocalReduce::kRack);
  Reconnect(0, {.node = "a", .rack = "r"}, 2);

  EXPECT_THAT(by_host, SizeIs(3));
  EXPECT_EQ(by_host.at(WorkerId{0}), by_host.at(WorkerId{2}));
  EXPECT_NE(by_host.at(WorkerId{0}), by_host.at(WorkerId{1}));
  EXPECT_THAT(by_rack, SizeIs(2));
  EXPECT_EQ(by_rack.at(WorkerId{0}), by_rack.at(WorkerId{1}));
  EXPECT_EQ(GroupsByPlace(registry_, LocalReduce::kHost), by_host);
  EXPECT_THAT(GroupsByPlace(registry_, LocalReduce::kNone), SizeIs(0));
}

TEST_F(WorkerGroupsTest, WorkersWithoutAHostNameShareAMachine) {
  WorkerGroups groups(LocalReduce::kHost);
  Join(0, {});
  Join(1, {});

  EXPECT_THAT(Update(groups),
              ElementsAre(Pair(0, WorkerIndices{0, 1}), Pair(1, WorkerIndices{0, 1})));
}

TEST_F(WorkerGroupsTest, WorkersOfOneRackSumTogether) {
  WorkerGroups groups(LocalReduce::kRack);
  Join(0, {.node = "a", .rack = "r"});
  Join(1, {.node = "a", .rack = "s"});
  Join(2, {.node = "b", .rack = "r"});

  EXPECT_THAT(Update(groups), AllBut1());
}

TEST_F(WorkerGroupsTest, WorkersOfUnknownRacksPushAlone) {
  WorkerGroups groups(LocalReduce::kRack);
  Join(0, {.node = "a"});
  Join(1, {.node = "a"});

  EXPECT_THAT(Update(groups), ElementsAre(Pair(0, WorkerIndices{}), Pair(1, WorkerIndices{})));
}

TEST_F(WorkerGroupsTest, MembersAreDescribedAsOthersNeedThem) {
  WorkerGroups groups(LocalReduce::kHost);
  Join(0, {.node = "a"});
  Join(3, {.node = "a"});

  const auto told = groups.Update(view_, registry_);

  ASSERT_THAT(told, SizeIs(2));
  const auto described = [](uint32_t worker) {
    return GroupMember{.worker = WorkerId{worker},
                       .incarnation = IncarnationOf(worker, 1),
                       .from_step = Step{worker},
                       .address = AddressOf(worker)};
  };
  EXPECT_THAT(told[0].second.members, ElementsAre(described(0), described(3)));
  EXPECT_EQ(told[1].second.members, told[0].second.members);
}

TEST_F(WorkerGroupsTest, AWorkerWithALastStepIsLeftOut) {
  WorkerGroups groups(LocalReduce::kHost);
  for (const uint32_t worker : {0U, 1U, 2U}) Join(worker, {.node = "a"});
  Update(groups);

  MemberAt(1).end_step = Step{9};

  EXPECT_THAT(Update(groups), AllBut1());
}

TEST_F(WorkerGroupsTest, AProcessIsLeftOutUntilItIsAMember) {
  WorkerGroups groups(LocalReduce::kHost);
  for (const uint32_t worker : {0U, 1U, 2U}) Join(worker, {.node = "a"});
  Update(groups);

  Reconnect(1, {.node = "a"}, 2);

  EXPECT_THAT(Update(groups), AllBut1());

  MemberAt(1).incarnation = IncarnationOf(1, 2);
  EXPECT_THAT(Update(groups), AllThree());
}

TEST_F(WorkerGroupsTest, AMemberWithoutASessionIsLeftOut) {
  WorkerGroups groups(LocalReduce::kHost);
  for (const uint32_t worker : {0U, 1U, 2U}) Join(worker, {.node = "a"});

  Disconnect(1);

  EXPECT_THAT(Update(groups),
              ElementsAre(Pair(0, WorkerIndices{0, 2}), Pair(2, WorkerIndices{0, 2})));
}

TEST_F(WorkerGroupsTest, AWorkerThatOthersCannotReachPushesAlone) {
  WorkerGroups groups(LocalReduce::kHost);
  Join(0, {.node = "a"});
  Join(2, {.node = "a"});
  registry_.Add(
      SessionId{++last_session_},
      RegisterWorker{.worker = WorkerId{1}, .incarnation = IncarnationOf(1, 1), .node = "a"});
  view_.members.insert(
      view_.members.begin() + 1,
      {.worker = WorkerId{1}, .incarnation = IncarnationOf(1, 1), .from_step = {}, .end_step = {}});

  EXPECT_THAT(Update(groups), AllBut1());
}

TEST_F(WorkerGroupsTest, ManyWorkersOfAHostFormSeveralGroups) {
  WorkerGroups groups(LocalReduce::kHost);
  for (uint32_t worker = 0; worker < 2 * kGroupMembersMax + 1; ++worker)
    Join(worker, {.node = "a"});
  std::map<uint32_t, WorkerIndices> told = Update(groups);

  const uint32_t last = 2 * kGroupMembersMax;
  EXPECT_THAT(told, SizeIs(last + 1));
  EXPECT_THAT(told[0], SizeIs(kGroupMembersMax));
  EXPECT_THAT(told[last - 1], SizeIs(kGroupMembersMax));
  EXPECT_NE(told[0], told[last - 1]);
  EXPECT_THAT(told[last], IsEmpty());
  told.erase(last);
  for (const auto& [worker, group] : told) EXPECT_THAT(group, testing::Contains(worker));

  Join(last + 1, {.node = "a"});
  EXPECT_THAT(Update(groups),
              ElementsAre(Pair(last, WorkerIndices{last, last + 1}),
                          Pair(last + 1, WorkerIndices{last, last + 1})));
}

TEST_F(WorkerGroupsTest, OnlyChangesAreTold) {
  WorkerGroups groups(LocalReduce::kHost);
  for (const auto& [worker, node] : {std::pair{0U, "a"}, {1U, "b"}, {2U, "a"}, {3U, "b"}})
    Join(worker, {.node = node});
  EXPECT_THAT(Update(groups), SizeIs(4));
  EXPECT_THAT(Update(groups), IsEmpty());

  Join(4, {.node = "b"});
  EXPECT_THAT(Update(groups),
              ElementsAre(Pair(1, WorkerIndices{1, 3, 4}),
                          Pair(3, WorkerIndices{1, 3, 4}),
                          Pair(4, WorkerIndices{1, 3, 4})));

  Remove(0);
  EXPECT_THAT(Update(groups), ElementsAre(Pair(2, WorkerIndices{})));
  EXPECT_THAT(Update(groups), IsEmpty());
}

TEST_F(WorkerGroupsTest, ANewSessionIsToldAgain) {
  WorkerGroups groups(LocalReduce::kHost);
  Join(0, {.node = "a"});
  Join(1, {.node = "a"});
  Update(groups);

  Reconnect(1, {.node = "a"});

  EXPECT_THAT(Update(groups), ElementsAre(Pair(1, WorkerIndices{0, 1})));
  EXPECT_THAT(Update(groups), IsEmpty());
}

TEST_F(WorkerGroupsTest, WithoutLocalReduceNobodyIsTold) {
  WorkerGroups groups(LocalReduce::kNone);
  Join(0, {.node = "a", .rack = "r"});
  Join(1, {.node = "a", .rack = "r"});

  EXPECT_THAT(Update(groups), IsEmpty());
  Reconnect(1, {.node = "a", .rack = "r"});
  EXPECT_THAT(Update(groups), IsEmpty());
}

}  // namespace
}  // namespace pushpull
