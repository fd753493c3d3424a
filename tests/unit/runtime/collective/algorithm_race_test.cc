// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/algorithm_race.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/runtime/collective/rank_threads.h"

namespace pushpull {
namespace {

TEST(AlgorithmRaceTest, AllRanksGetTheSameTable) {
  for (const LinkChannel channel : {LinkChannel::kTcp, LinkChannel::kShm}) {
    std::vector<AlgorithmTable> tables(3, AlgorithmTable(3));
    const auto body = [&](const std::unique_ptr<Communicator>& own) -> absl::Status {
      absl::Status status =
          RaceAlgorithms(*own, {.bytes_max = 8 << 10, .rounds = 1}, TestDeadline());
      tables[own->rank()] = own->table();
      return status;
    };

    for (const absl::Status& status : OnRanks(3, channel, body)) EXPECT_TRUE(status.ok()) << status;

    EXPECT_TRUE(tables[0] == tables[1] && tables[0] == tables[2]);
  }
}

}  // namespace
}  // namespace pushpull
