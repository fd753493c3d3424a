// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/gate.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

constexpr WorkerId kGateAnn{0};
constexpr WorkerId kGateBob{3};
constexpr WorkerId kEve{5};

View GatedView(uint64_t number, std::vector<ViewMember> members) {
  return {.number = number, .members = std::move(members), .consistency = {.gated = true}};
}

class GateTest : public testing::Test {
 protected:
  GateTest() {
    membership_.Activate(GatedView(1,
                                   {{kGateAnn, Incarnation{1}, Step{0}, std::nullopt},
                                    {kGateBob, Incarnation{1}, Step{0}, Step{5}}}));
  }
  bool MayDecideWith(const std::vector<WorkerId>& asked, uint64_t step = 4) {
    return MayDecide(membership_, Step{step}, asked);
  }
  MembershipView membership_;
};

TEST_F(GateTest, EverybodyHasToAsk) {
  EXPECT_FALSE(MayDecideWith({}));
  EXPECT_FALSE(MayDecideWith({kGateAnn}));
  EXPECT_TRUE(MayDecideWith({kGateAnn, kGateBob}));
}

TEST_F(GateTest, ADepartedWorkerIsNotWaitedFor) {
  EXPECT_TRUE(MayDecideWith({kGateAnn}, 5));
}

TEST_F(GateTest, AProposedJoinerIsWaitedForFromItsFirstStepOn) {
  ASSERT_TRUE(membership_.Propose(GatedView(2,
                                            {{kGateAnn, Incarnation{1}, Step{0}, std::nullopt},
                                             {kGateBob, Incarnation{1}, Step{0}, Step{5}},
                                             {kEve, Incarnation{1}, Step{6}, std::nullopt}}),
                                  Step{5}));

  EXPECT_TRUE(MayDecideWith({kGateAnn}, 5));
  EXPECT_FALSE(MayDecideWith({kGateAnn}, 6));
  EXPECT_TRUE(MayDecideWith({kGateAnn, kEve}, 6));
}

TEST_F(GateTest, AWorkerThatAskedAndDiedChangesNothing) {
  membership_.Activate(GatedView(2, {{kGateAnn, Incarnation{1}, Step{0}, std::nullopt}}));

  EXPECT_FALSE(MayDecideWith({kGateBob}));
  EXPECT_TRUE(MayDecideWith({kGateAnn, kGateBob}));
}

TEST_F(GateTest, AnEmptyViewDecidesNothing) {
  membership_.Activate(GatedView(2, {}));

  EXPECT_FALSE(MayDecideWith({kGateAnn, kGateBob}));
}

}  // namespace
}  // namespace pushpull
