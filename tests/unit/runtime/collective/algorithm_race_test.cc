// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/algorithm_race.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/runtime/collective/rank_threads.h"

namespace pushpull {
namespace {

TEST(AlgorithmRaceTest, AllRanksGetTheSameTable) {
  constexpr size_t kBytes = 8 << 10;
  for (const LinkChannel channel : {LinkChannel::kTcp, LinkChannel::kShm}) {
    for (const size_t shared_bytes : {size_t{0}, kBytes}) {
      std::vector<AlgorithmTable> tables(3, AlgorithmTable(3));
      const auto body = [&](const std::unique_ptr<Communicator>& own,
                            std::span<std::byte> memory) -> absl::Status {
        absl::Status status = RaceAlgorithms(
            *own, {.bytes_max = kBytes, .rounds = 1, .memory = memory}, TestDeadline());
        tables[own->rank()] = own->table();
        return status;
      };

      for (const absl::Status& status : OnSharingRanks(3, channel, shared_bytes, body))
        EXPECT_TRUE(status.ok()) << status;

      EXPECT_TRUE(tables[0] == tables[1] && tables[0] == tables[2]);
    }
  }
}

}  // namespace
}  // namespace pushpull
