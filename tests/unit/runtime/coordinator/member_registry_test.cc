// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/member_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr SessionId kFirstSession{1};
constexpr SessionId kSecondSession{2};
constexpr ServerId kServerZero{0};
constexpr WorkerId kWorker{0};

class MemberRegistryTest : public testing::Test {
 protected:
  void AddServer(uint32_t index) {
    registry_.Add(SessionId{100 + index}, RegisterServer{.server = ServerId{index}});
  }

  SteadyTime now_{};
  MemberRegistry registry_;
};

TEST_F(MemberRegistryTest, ASessionIsSilentAfterTheTimeout) {
  registry_.OnReceived(now_, kFirstSession);
  registry_.OnReceived(now_ + seconds(15), kSecondSession);

  EXPECT_THAT(registry_.FindSilent(now_ + seconds(20), seconds(20)), IsEmpty());
  EXPECT_THAT(registry_.FindSilent(now_ + seconds(21), seconds(20)), ElementsAre(kFirstSession));
}

TEST_F(MemberRegistryTest, ItsOwnSilenceIsNoSilenceOfMembers) {
  registry_.OnReceived(now_, kFirstSession);

  registry_.Excuse(seconds(100));

  EXPECT_THAT(registry_.FindSilent(now_ + seconds(120), seconds(20)), IsEmpty());
  EXPECT_THAT(registry_.FindSilent(now_ + seconds(121), seconds(20)), ElementsAre(kFirstSession));
}

TEST_F(MemberRegistryTest, RackThatIsSetCountsAlsoForLaterProcesses) {
  AddServer(0);

  EXPECT_TRUE(registry_.SetRack({.is_server = true, .index = 0, .rack = "r1"}));
  EXPECT_FALSE(registry_.SetRack({.is_server = true, .index = 0, .rack = "r1"}));
  EXPECT_FALSE(registry_.SetRack({.is_server = false, .index = 0, .rack = "r2"}));
  EXPECT_EQ(registry_.Find(kServerZero)->info.rack, "r1");
  registry_.Add(kFirstSession, RegisterWorker{.worker = kWorker, .rack = "as it says itself"});

  EXPECT_EQ(registry_.Find(kWorker)->info.rack, "r2");
}

TEST_F(MemberRegistryTest, OnlyTheSameProcessHasAnEarlierSession) {
  registry_.Add(kFirstSession,
                RegisterServer{.server = kServerZero, .incarnation = Incarnation{7}});
  const auto earlier = [this](uint64_t incarnation) {
    return registry_.EarlierSessionOf(
        RegisterServer{.server = kServerZero, .incarnation = Incarnation{incarnation}});
  };

  EXPECT_EQ(earlier(7), kFirstSession);
  EXPECT_EQ(earlier(8), std::nullopt);
  EXPECT_EQ(registry_.EarlierSessionOf(RegisterWorker{.worker = kWorker}), std::nullopt);
  EXPECT_EQ(registry_.EarlierSessionOf(Heartbeat{}), std::nullopt);
}

TEST_F(MemberRegistryTest, MembersAreFoundByIndexAndBySession) {
  registry_.Add(kFirstSession,
                RegisterServer{.server = kServerZero, .incarnation = Incarnation{7}});
  registry_.Add(kSecondSession, RegisterWorker{.worker = kWorker});

  EXPECT_EQ(registry_.ServerAt(kFirstSession), kServerZero);
  EXPECT_EQ(registry_.ServerAt(kSecondSession), std::nullopt);
  EXPECT_EQ(registry_.WorkerAt(kSecondSession), kWorker);
  EXPECT_EQ(registry_.Find(kServerZero)->info.incarnation, Incarnation{7});
  EXPECT_EQ(registry_.Find(kWorker)->session, kSecondSession);
  EXPECT_EQ(registry_.Find(ServerId{1}), nullptr);
}

TEST_F(MemberRegistryTest, RemovingASessionReturnsItsMember) {
  registry_.Add(kFirstSession, RegisterWorker{.worker = kWorker});
  registry_.OnLeaving(kWorker);
  registry_.OnReceived(now_, kSecondSession);

  const MemberRegistry::Departed worker = registry_.Remove(kFirstSession);
  const MemberRegistry::Departed nobody = registry_.Remove(kSecondSession);

  ASSERT_TRUE(std::holds_alternative<MemberRegistry::Worker>(worker));
  EXPECT_TRUE(std::get<MemberRegistry::Worker>(worker).is_leaving);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(nobody));
  EXPECT_EQ(registry_.Find(kWorker), nullptr);
  EXPECT_THAT(registry_.sessions(), IsEmpty());
}

TEST_F(MemberRegistryTest, TheFirstServersMustAllBeRegistered) {
  AddServer(0);
  AddServer(2);
  EXPECT_FALSE(registry_.HasFirstServers(2));

  AddServer(1);

  EXPECT_TRUE(registry_.HasFirstServers(2));
  EXPECT_TRUE(registry_.HasFirstServers(3));
  EXPECT_FALSE(registry_.HasFirstServers(4));
}

TEST_F(MemberRegistryTest, ATableIsEverywhereWhenTheLastServerHasIt) {
  AddServer(0);
  AddServer(1);
  registry_.OnTensorsInstalled(ServerId{0}, 3);
  EXPECT_FALSE(registry_.AllServersHave(3));

  registry_.OnTensorsInstalled(ServerId{1}, 3);

  EXPECT_TRUE(registry_.AllServersHave(3));
}

}  // namespace
}  // namespace pushpull
