// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/gate.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

constexpr WorkerId kAnn{0};
constexpr WorkerId kBob{3};
constexpr WorkerId kEve{5};

View ViewOf(uint64_t number, std::vector<ViewMember> members) {
  return {.number = number, .members = std::move(members), .consistency = {.gated = true}};
}

class GateTest : public testing::Test {
 protected:
  GateTest() {
    membership_.Activate(ViewOf(
        1,
        {{kAnn, Incarnation{1}, Step{0}, std::nullopt}, {kBob, Incarnation{1}, Step{0}, Step{5}}}));
  }
  bool MayDecideWith(const std::vector<WorkerId>& asked, uint64_t step = 4) {
    return MayDecide(membership_, Step{step}, asked);
  }
  MembershipView membership_;
};

TEST_F(GateTest, EverybodyHasToAsk) {
  EXPECT_FALSE(MayDecideWith({}));
  EXPECT_FALSE(MayDecideWith({kAnn}));
  EXPECT_TRUE(MayDecideWith({kAnn, kBob}));
}

TEST_F(GateTest, ADepartedWorkerIsNotWaitedFor) {
  EXPECT_TRUE(MayDecideWith({kAnn}, 5));
}

TEST_F(GateTest, AProposedJoinerIsWaitedForFromItsFirstStepOn) {
  ASSERT_TRUE(membership_.Propose(ViewOf(2,
                                         {{kAnn, Incarnation{1}, Step{0}, std::nullopt},
                                          {kBob, Incarnation{1}, Step{0}, Step{5}},
                                          {kEve, Incarnation{1}, Step{6}, std::nullopt}}),
                                  Step{5}));

  EXPECT_TRUE(MayDecideWith({kAnn}, 5));
  EXPECT_FALSE(MayDecideWith({kAnn}, 6));
  EXPECT_TRUE(MayDecideWith({kAnn, kEve}, 6));
}

TEST_F(GateTest, AWorkerThatAskedAndDiedChangesNothing) {
  membership_.Activate(ViewOf(2, {{kAnn, Incarnation{1}, Step{0}, std::nullopt}}));

  EXPECT_FALSE(MayDecideWith({kBob}));
  EXPECT_TRUE(MayDecideWith({kAnn, kBob}));
}

TEST_F(GateTest, AnEmptyViewDecidesNothing) {
  membership_.Activate(ViewOf(2, {}));

  EXPECT_FALSE(MayDecideWith({kAnn, kBob}));
}

}  // namespace
}  // namespace pushpull
