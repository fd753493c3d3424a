// SPDX-License-Identifier: Apache-2.0
//
// Schedules of all ranks together: what they send, and that they fit. That they compute the right
// values is in schedule_runner_test.cc.
#include "runtime/collective/schedule.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

constexpr Collective kCollectivesOfSchedules[] = {Collective::kAllReduce,
                                                  Collective::kReduceScatter,
                                                  Collective::kAllGather,
                                                  Collective::kBroadcast};

std::vector<RankSchedule> SchedulesOf(ScheduleRequest request) {
  std::vector<RankSchedule> schedules;
  for (request.rank = 0; request.rank < request.ranks; ++request.rank)
    schedules.push_back(MakeSchedule(request));
  return schedules;
}

// What each rank sends to, or receives from, each other one, in order.
using Messages = std::map<std::pair<int, int>, std::vector<ElementRange>>;

Messages MessagesOf(const std::vector<RankSchedule>& schedules, bool is_sent) {
  Messages messages;
  for (size_t i = 0; i < schedules.size(); ++i) {
    const int rank = static_cast<int>(i);
    for (const ScheduleOp& op : schedules[i].ops) {
      if (is_sent && op.kind == OpKind::kSend) messages[{rank, op.peer}].push_back(op.range);
      if (!is_sent && IsReceive(op.kind)) messages[{op.peer, rank}].push_back(op.range);
    }
  }
  return messages;
}

TEST(ScheduleTest, SendsAndReceivesFit) {
  for (const Collective collective : kCollectivesOfSchedules) {
    for (const Algorithm algorithm : AllAlgorithms()) {
      for (int ranks = 1; ranks <= 9; ++ranks) {
        const std::vector<RankSchedule> schedules = SchedulesOf({.collective = collective,
                                                                 .algorithm = algorithm,
                                                                 .ranks = ranks,
                                                                 .elements = 37,
                                                                 .root = ranks / 2});

        EXPECT_EQ(MessagesOf(schedules, true), MessagesOf(schedules, false))
            << ToString(collective) << " by " << ToString(algorithm) << " of " << ranks;
      }
    }
  }
}

TEST(ScheduleTest, RingsSplitAndDoublingSendTheLeast) {
  constexpr uint64_t kElements = 64'000;
  for (const Algorithm algorithm :
       {Algorithm::kRing, Algorithm::kBidirectionalRing, Algorithm::kSplit}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (const RankSchedule& schedule :
           SchedulesOf({.algorithm = algorithm, .ranks = ranks, .elements = kElements})) {
        const double least = 2.0 * (ranks - 1) / ranks * kElements;
        EXPECT_NEAR(static_cast<double>(ElementsSent(schedule)), least, 0.02 * least)
            << ToString(algorithm) << " of " << ranks;
      }
    }
  }
  for (const int ranks : {2, 4, 8}) {
    for (const RankSchedule& schedule : SchedulesOf(
             {.algorithm = Algorithm::kHalvingDoubling, .ranks = ranks, .elements = kElements})) {
      const auto count = static_cast<uint64_t>(ranks);
      EXPECT_EQ(ElementsSent(schedule), 2 * kElements / count * (count - 1));
    }
  }
}

TEST(ScheduleTest, BlocksSendAsManyBytesAndFit) {
  for (const Algorithm algorithm : AllAlgorithms()) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      ScheduleRequest request = {.algorithm = algorithm, .ranks = ranks, .elements = 64'000};
      const uint64_t whole = ElementsSent(MakeSchedule(request));
      request.block_elements = 8000;
      const std::vector<RankSchedule> schedules = SchedulesOf(request);

      EXPECT_EQ(MessagesOf(schedules, true), MessagesOf(schedules, false));
      EXPECT_NEAR(static_cast<double>(ElementsSent(schedules[0])),
                  static_cast<double>(whole),
                  0.01 * static_cast<double>(whole));
    }
  }
}

TEST(ScheduleTest, OnlyNeighboursOfARingTalk) {
  for (const RankSchedule& schedule : SchedulesOf(
           {.algorithm = Algorithm::kBidirectionalRing, .ranks = 5, .rank = 0, .elements = 100})) {
    std::vector<int> peers;
    for (const ScheduleOp& op : schedule.ops) {
      if (op.kind == OpKind::kSend) peers.push_back(op.peer);
    }
    EXPECT_THAT(std::set<int>(peers.begin(), peers.end()), testing::SizeIs(2));
  }
}

TEST(ScheduleTest, PiecesCoverEverythingAndDifferByOne) {
  for (const uint64_t elements : {0U, 1U, 7U, 64U, 1001U}) {
    uint64_t at = 0;
    for (int piece = 0; piece < 7; ++piece) {
      const ElementRange range = PieceOf(elements, 7, piece);
      EXPECT_EQ(range.begin, at);
      EXPECT_GE(range.size(), elements / 7);
      EXPECT_LE(range.size(), elements / 7 + 1);
      at = range.end;
    }
    EXPECT_EQ(at, elements);
  }
}

TEST(ScheduleTest, NothingIsSentOfNothingOrAlone) {
  for (const Algorithm algorithm : AllAlgorithms()) {
    EXPECT_THAT(MakeSchedule({.algorithm = algorithm, .ranks = 4, .rank = 1}).ops,
                testing::IsEmpty());
    EXPECT_THAT(MakeSchedule({.algorithm = algorithm, .elements = 5}).ops, testing::IsEmpty());
  }
}

TEST(ScheduleTest, NamesOfAlgorithmsAreReadBack) {
  for (const Algorithm algorithm : AllAlgorithms())
    EXPECT_EQ(*ParseAlgorithm(ToString(algorithm)), algorithm);
  EXPECT_EQ(*ParseAlgorithm("auto"), Algorithm::kAuto);
  for (const Collective collective : kCollectivesOfSchedules)
    EXPECT_EQ(*ParseCollective(ToString(collective)), collective);

  const absl::Status unknown = ParseAlgorithm("butterfly").status();

  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), testing::HasSubstr("\"butterfly\""));
}

}  // namespace
}  // namespace pushpull
