// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/ids.h"

#include <type_traits>

#include "absl/hash/hash_testing.h"
#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(IdTest, IsOrderedByItsValueAndNoOtherId) {
  EXPECT_LT(Step{1}, Step{2});
  EXPECT_EQ(ChunkId{7}, ChunkId{7});
  EXPECT_EQ(Step{}, Step{0});
  EXPECT_FALSE((std::is_convertible_v<WorkerId, ServerId>));
  EXPECT_FALSE((std::is_convertible_v<uint32_t, WorkerId>));
}

TEST(IdTest, HashesAsItCompares) {
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly({ChunkId{0}, ChunkId{1}, ChunkId{9}}));
}

TEST(EpochTest, ALaterTermIsAboveEveryEarlierCounter) {
  const Epoch early{Term{1}, 900};
  const Epoch late{Term{2}, 0};

  EXPECT_LT(early, late);
  EXPECT_LT(late, (Epoch{Term{2}, 1}));
  EXPECT_EQ(ToString(early), "1.900");
}

TEST(IdTest, NodesAreNamedAsInTheLog) {
  EXPECT_EQ(ToString(WorkerId{3}), "worker-3");
  EXPECT_EQ(ToString(ServerId{0}), "server-0");
}

}  // namespace
}  // namespace pushpull
