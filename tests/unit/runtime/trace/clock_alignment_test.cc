// SPDX-License-Identifier: Apache-2.0
#include "runtime/trace/clock_alignment.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TraceReport Measured(uint32_t worker, std::vector<TracedClock> clocks) {
  return {.worker = WorkerId{worker}, .clocks = std::move(clocks)};
}

TEST(ClockAlignmentTest, ClocksAreFoundThroughServersInCommon) {
  // Worker-1 has no server in common with worker-0, but with worker-2.
  const AlignedClocks clocks = AlignClocks({Measured(0, {{ServerId{0}, 100}}),
                                            Measured(1, {{ServerId{1}, 30}}),
                                            Measured(2, {{ServerId{0}, 90}, {ServerId{1}, 50}})});

  EXPECT_EQ(clocks.workers.at(WorkerId{0}), 0);
  EXPECT_EQ(clocks.servers.at(ServerId{0}), 100);
  EXPECT_EQ(clocks.workers.at(WorkerId{2}), 10);
  EXPECT_EQ(clocks.servers.at(ServerId{1}), 60);
  EXPECT_EQ(clocks.workers.at(WorkerId{1}), 30);
}

TEST(ClockAlignmentTest, AProcessThatNothingConnectsKeepsItsClock) {
  const AlignedClocks clocks =
      AlignClocks({Measured(0, {{ServerId{0}, 5}}), Measured(1, {{ServerId{1}, 7}})});

  EXPECT_EQ(clocks.workers.at(WorkerId{1}), 0);
  EXPECT_EQ(clocks.servers.at(ServerId{1}), 7);
}

TEST(ClockAlignmentTest, AnyClocksAreAlignedWithinTheirErrors) {
  constexpr int64_t kError = 1000;
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int64_t> any_clock(-1'000'000'000'000'000, 1'000'000'000'000'000);
  std::uniform_int_distribution<int64_t> any_error(-kError, kError);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> workers(1 + random() % 8);
    std::vector<int64_t> servers(1 + random() % 8);
    for (int64_t& clock : workers) clock = any_clock(random);
    for (int64_t& clock : servers) clock = any_clock(random);
    std::vector<TraceReport> reports;
    for (uint32_t worker = 0; worker < workers.size(); ++worker) {
      reports.push_back(Measured(worker, {}));
      for (uint32_t server = 0; server < servers.size(); ++server) {
        reports.back().clocks.push_back(
            {ServerId{server}, servers[server] - workers[worker] + any_error(random)});
      }
    }

    const AlignedClocks clocks = AlignClocks(reports);

    for (uint32_t worker = 0; worker < workers.size(); ++worker) {
      EXPECT_NEAR(static_cast<double>(clocks.workers.at(WorkerId{worker})),
                  static_cast<double>(workers[worker] - workers[0]),
                  2.0 * kError);
    }
    for (uint32_t server = 0; server < servers.size(); ++server) {
      EXPECT_NEAR(static_cast<double>(clocks.servers.at(ServerId{server})),
                  static_cast<double>(servers[server] - workers[0]),
                  1.0 * kError);
    }
  }
}

}  // namespace
}  // namespace pushpull
