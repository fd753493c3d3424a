// SPDX-License-Identifier: Apache-2.0
//
// Collectives between threads over both channels, and what becomes of all ranks when one fails.
#include "runtime/collective/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/collective/rank_arrays.h"
#include "tests/unit/runtime/collective/rank_threads.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr LinkChannel kChannels[] = {LinkChannel::kTcp, LinkChannel::kShm};

std::span<std::byte> BytesIn(std::span<float> values) {
  return std::as_writable_bytes(values);
}

std::span<float> FloatsIn(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// Whole numbers, so that sums are exact: i + rank.
std::vector<float> CountFrom(uint32_t rank, uint64_t elements) {
  std::vector<float> values(elements);
  for (uint64_t i = 0; i < elements; ++i) values[i] = static_cast<float>(i % 1000 + rank);
  return values;
}

std::vector<float> SumOfCounts(uint32_t ranks, uint64_t elements) {
  std::vector<float> values(elements);
  const uint64_t of_ranks = uint64_t{ranks} * (ranks - 1) / 2;
  for (uint64_t i = 0; i < elements; ++i)
    values[i] = static_cast<float>(ranks * (i % 1000) + of_ranks);
  return values;
}

absl::Status Unless(bool is_right, const std::string& what) {
  return is_right ? absl::OkStatus() : absl::DataLossError("wrong elements after " + what);
}

bool Equal(std::span<const float> values, const std::vector<float>& expected) {
  return std::equal(values.begin(), values.end(), expected.begin(), expected.end());
}

// Every collective by one algorithm on arrays of as many elements as `values`, which they are in.
absl::Status CallAll(Communicator& ranks, Algorithm algorithm, std::span<float> values) {
  const uint64_t elements = values.size();
  const auto fill = [&] {
    const std::vector<float> own = CountFrom(ranks.rank(), elements);
    std::copy(own.begin(), own.end(), values.begin());
  };
  const ReductionOp sum(ElementKind::kFloat32, ElementOp::kSum);
  const std::vector<float> expected = SumOfCounts(ranks.size(), elements);
  fill();
  absl::Status status = ranks.AllReduce(BytesIn(values), sum, algorithm, TestDeadline());
  if (!status.ok()) return status;
  status = Unless(Equal(values, expected), "all-reduce");
  if (!status.ok()) return status;

  fill();
  const absl::StatusOr<ElementRange> piece =
      ranks.ReduceScatter(BytesIn(values), sum, algorithm, TestDeadline());
  if (!piece.ok()) return piece.status();
  for (uint64_t i = piece->begin; i < piece->end; ++i) {
    status = Unless(values[i] == expected[i], "reduce-scatter");
    if (!status.ok()) return status;
  }
  status = ranks.AllGather(BytesIn(values), sizeof(float), algorithm, TestDeadline());
  if (!status.ok()) return status;
  status = Unless(Equal(values, expected), "all-gather");
  if (!status.ok()) return status;

  const uint32_t root = ranks.size() - 1;
  fill();
  status = ranks.Broadcast(BytesIn(values), root, algorithm, TestDeadline());
  if (!status.ok()) return status;
  return Unless(Equal(values, CountFrom(root, elements)), "broadcast");
}

constexpr uint64_t kElementsMost = 150'001;

// `array` has kElementsMost elements.
absl::Status CallAllByAll(Communicator& ranks, std::span<float> array) {
  for (const Algorithm algorithm : AllAlgorithms()) {
    for (const uint64_t elements : {uint64_t{0}, uint64_t{1}, uint64_t{1001}, kElementsMost}) {
      absl::Status status = CallAll(ranks, algorithm, array.first(elements));
      if (!status.ok()) return status;
    }
  }
  return CallAll(ranks, Algorithm::kAuto, array.first(5000));
}

TEST(CommunicatorTest, EveryCollectiveByEveryAlgorithm) {
  const auto body = [](const std::unique_ptr<Communicator>& own) {
    std::vector<float> array(kElementsMost);
    return CallAllByAll(*own, array);
  };
  for (const LinkChannel channel : kChannels) {
    for (const uint32_t ranks : {1U, 2U, 3U, 8U}) {
      for (const absl::Status& status : OnRanks(ranks, channel, body))
        EXPECT_TRUE(status.ok()) << NameOf(channel) << " of " << ranks << ": " << status;
    }
  }
}

TEST(CommunicatorTest, EveryCollectiveByEveryAlgorithmOnSharedArrays) {
  const auto body = [](const std::unique_ptr<Communicator>& own, std::span<std::byte> shared) {
    return CallAllByAll(*own, FloatsIn(shared));
  };
  for (const uint32_t ranks : {1U, 2U, 3U, 8U}) {
    for (const absl::Status& status :
         OnSharingRanks(ranks, LinkChannel::kShm, kElementsMost * sizeof(float), body))
      EXPECT_TRUE(status.ok()) << ranks << " ranks: " << status;
  }
}

// A trial of all-reduces of `values`, each of which must be right while the algorithm changes.
absl::Status CallUntilChosen(Communicator& ranks, std::span<float> values) {
  const ReductionOp sum(ElementKind::kFloat32, ElementOp::kSum);
  const std::vector<float> expected = SumOfCounts(ranks.size(), values.size());
  const uint64_t bytes = values.size_bytes();
  do {
    const std::vector<float> own = CountFrom(ranks.rank(), values.size());
    std::copy(own.begin(), own.end(), values.begin());
    absl::Status status = ranks.AllReduce(BytesIn(values), sum, Algorithm::kAuto, TestDeadline());
    if (!status.ok()) return status;
    status = Unless(Equal(values, expected), "all-reduce");
    if (!status.ok()) return status;
  } while (!ranks.FindTrial(Collective::kAllReduce, bytes)->is_over());
  return absl::OkStatus();
}

TEST(CommunicatorTest, ATrialEndsWithTheSameAlgorithmOnAllRanks) {
  constexpr size_t kBytes = 8 << 10;
  for (const LinkChannel channel : kChannels) {
    for (const size_t shared_bytes : {size_t{0}, channel == LinkChannel::kShm ? kBytes : 0}) {
      std::vector<Algorithm> chosen(3, Algorithm::kAuto);
      const auto body = [&](const std::unique_ptr<Communicator>& own,
                            std::span<std::byte> shared) -> absl::Status {
        std::vector<float> array(kBytes / sizeof(float));
        const std::span<float> values = shared.empty() ? std::span(array) : FloatsIn(shared);
        own->TryAlgorithms({.collectives = {Collective::kAllReduce}});
        absl::Status status = CallUntilChosen(*own, values);
        const std::vector<EndedTrial> ended = own->TakeEndedTrials();
        if (!status.ok() || ended.size() != 1) return status;
        chosen[own->rank()] = ended.front().results.front().algorithm;
        return Unless(own->TakeEndedTrials().empty(), "a trial that ended twice");
      };

      for (const absl::Status& status : OnSharingRanks(3, channel, shared_bytes, body))
        EXPECT_TRUE(status.ok()) << status;

      EXPECT_NE(chosen[0], Algorithm::kAuto);
      EXPECT_THAT(chosen, testing::Each(chosen[0]));
    }
  }
}

TEST(CommunicatorTest, OnlyTheNamedCallsAreTried) {
  const auto body = [](const std::unique_ptr<Communicator>& own) -> absl::Status {
    std::vector<float> values(100);
    own->TryAlgorithms(
        {.collectives = {Collective::kAllReduce}, .bytes_min = values.size() * sizeof(float)});
    const ReductionOp sum(ElementKind::kFloat32, ElementOp::kSum);
    const std::span<float> fewer = std::span(values).first(99);
    for (const absl::Status& status :
         {own->AllReduce(BytesIn(values), sum, Algorithm::kAuto, TestDeadline()),
          own->AllReduce(BytesIn(fewer), sum, Algorithm::kAuto, TestDeadline()),
          own->Broadcast(BytesIn(values), 0, Algorithm::kAuto, TestDeadline())}) {
      if (!status.ok()) return status;
    }
    const auto is_tried = [&](Collective collective, std::span<float> array) {
      return own->FindTrial(collective, array.size_bytes()) != nullptr;
    };
    return Unless(is_tried(Collective::kAllReduce, values) &&
                      !is_tried(Collective::kAllReduce, fewer) &&
                      !is_tried(Collective::kBroadcast, values),
                  "other calls are tried");
  };

  for (const absl::Status& status : OnRanks(2, LinkChannel::kTcp, body))
    EXPECT_TRUE(status.ok()) << status;
}

// The root changes its array as soon as a call has returned.
TEST(CommunicatorTest, SharedArraysMayChangeOnceACallIsOver) {
  constexpr size_t kBytes = size_t{1} << 20;
  const auto body = [](const std::unique_ptr<Communicator>& own, std::span<std::byte> array) {
    for (int round = 0; round < 50; ++round) {
      const auto value = static_cast<std::byte>(round);
      std::fill(array.begin(), array.end(), own->rank() == 0 ? value : std::byte{0xFF});
      absl::Status status = own->Broadcast(array, 0, Algorithm::kRoot, TestDeadline());
      if (!status.ok()) return status;
      const bool is_right =
          std::all_of(array.begin(), array.end(), [&](std::byte found) { return found == value; });
      if (!is_right) return absl::DataLossError("bytes of another round");
    }
    return absl::OkStatus();
  };

  for (const absl::Status& status : OnSharingRanks(3, LinkChannel::kShm, kBytes, body))
    EXPECT_TRUE(status.ok()) << status;
}

// Only some ranks share theirs.
TEST(CommunicatorTest, PrivateAndSharedArraysMix) {
  const auto body = [](const std::unique_ptr<Communicator>& own, std::span<std::byte> shared) {
    std::vector<float> array(kElementsMost);
    return CallAll(
        *own, Algorithm::kRing, own->rank() == 1 ? FloatsIn(shared) : std::span<float>(array));
  };

  for (const absl::Status& status :
       OnSharingRanks(3, LinkChannel::kShm, kElementsMost * sizeof(float), body))
    EXPECT_TRUE(status.ok()) << status;
}

// Its peers have exposed elements that it will never read.
TEST(CommunicatorTest, ALostRankEndsCallsOnSharedArrays) {
  for (const Algorithm algorithm : AllAlgorithms()) {
    const auto body = [&](const std::unique_ptr<Communicator>& own,
                          std::span<std::byte> array) -> absl::Status {
      const ReductionOp sum(ElementKind::kFloat32, ElementOp::kSum);
      absl::Status status = own->AllReduce(array, sum, algorithm, TestDeadline());
      if (!status.ok()) return absl::InternalError("the first call has failed");
      if (own->rank() == 2) return absl::OkStatus();
      return own->AllReduce(array, sum, algorithm, TestDeadline());
    };

    const std::vector<absl::Status> results =
        OnSharingRanks(4, LinkChannel::kShm, kElementsMost * sizeof(float), body);

    for (const size_t rank : {0U, 1U, 3U}) {
      EXPECT_EQ(results[rank].code(), absl::StatusCode::kUnavailable)
          << ToString(algorithm) << ": " << results[rank];
    }
  }
}

TEST(CommunicatorTest, ElementsOfAllSizesFollowEachOther) {
  for (const LinkChannel channel : kChannels) {
    const auto body = [](const std::unique_ptr<Communicator>& own) -> absl::Status {
      for (const Algorithm algorithm : AllAlgorithms()) {
        for (const ElementKind kind : {ElementKind::kInt8,
                                       ElementKind::kFloat64,
                                       ElementKind::kBFloat16,
                                       ElementKind::kInt32}) {
          const RankArrays inputs = RandomArrays(kind, own->size(), 13);
          std::vector<std::byte> values = inputs[own->rank()];
          absl::Status status =
              own->AllReduce(values, ReductionOp(kind, ElementOp::kSum), algorithm, TestDeadline());
          if (!status.ok()) return status;
          const std::string wrong = WrongWith(kind, ElementOp::kSum, inputs, {0, 13}, values);
          if (!wrong.empty()) return absl::DataLossError(wrong);
        }
      }
      return absl::OkStatus();
    };

    for (const absl::Status& status : OnRanks(4, channel, body))
      EXPECT_TRUE(status.ok()) << NameOf(channel) << ": " << status;
  }
}

TEST(CommunicatorTest, ARingSendsTheLeastBytes) {
  for (const LinkChannel channel : kChannels) {
    const auto body = [](const std::unique_ptr<Communicator>& own) -> absl::Status {
      std::vector<float> values = CountFrom(own->rank(), 40'000);
      absl::Status status = own->AllReduce(BytesIn(values),
                                           ReductionOp(ElementKind::kFloat32, ElementOp::kSum),
                                           Algorithm::kRing,
                                           TestDeadline());
      if (!status.ok()) return status;
      return Unless(own->bytes_sent() == 2 * 160'000 / 4 * 3, "counting bytes");
    };

    for (const absl::Status& status : OnRanks(4, channel, body)) EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(CommunicatorTest, ALostRankEndsTheCallOfAll) {
  for (const LinkChannel channel : kChannels) {
    for (const Algorithm algorithm : AllAlgorithms()) {
      const auto body = [&](std::unique_ptr<Communicator> own) -> absl::Status {
        const ReductionOp sum(ElementKind::kFloat32, ElementOp::kSum);
        std::vector<float> values(200'000);
        absl::Status status = own->AllReduce(BytesIn(values), sum, algorithm, TestDeadline());
        if (!status.ok()) return absl::InternalError("the first call has failed");
        if (own->rank() == 2) return absl::OkStatus();  // and its communicator is gone
        status = own->AllReduce(BytesIn(values), sum, algorithm, TestDeadline());
        const absl::Status again = own->AllReduce(BytesIn(values), sum, algorithm, TestDeadline());
        EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(std::string(again.message()), HasSubstr(std::string(status.message())));
        return status;
      };

      const std::vector<absl::Status> results = OnRanks(4, channel, body);

      for (const size_t rank : {0U, 1U, 3U}) {
        SCOPED_TRACE(NameOf(channel) + " " + ToString(algorithm));
        EXPECT_EQ(results[rank].code(), absl::StatusCode::kUnavailable) << results[rank];
        EXPECT_THAT(std::string(results[rank].message()),
                    AllOf(HasSubstr("rank " + std::to_string(rank) + " of 4: call 2, all-reduce"),
                          HasSubstr("(float32 sum): rank ")));
      }
    }
  }
}

TEST(CommunicatorTest, ALateRankIsNamed) {
  for (const LinkChannel channel : kChannels) {
    const auto body = [](const std::unique_ptr<Communicator>& own) -> absl::Status {
      const ReductionOp sum(ElementKind::kFloat32, ElementOp::kSum);
      std::vector<float> values(10);
      if (own->rank() != 0) {
        // Waits for what rank 0 never sends, until its links are closed.
        return own->Broadcast(BytesIn(values), 0, Algorithm::kTree, TestDeadline());
      }
      return own->Broadcast(
          BytesIn(values), 1, Algorithm::kTree, Deadline::After(std::chrono::milliseconds(50)));
    };

    const std::vector<absl::Status> results = OnRanks(2, channel, body);

    EXPECT_EQ(results[0].code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(results[0].message()),
                AllOf(HasSubstr("rank 0 of 2: call 1, broadcast by tree"),
                      HasSubstr("for what rank 1 sends")));
    EXPECT_EQ(results[1].code(), absl::StatusCode::kUnavailable);
  }
}

TEST(CommunicatorTest, DifferentCallsAreSaidWithBoth) {
  for (const LinkChannel channel : kChannels) {
    const auto body = [](const std::unique_ptr<Communicator>& own) -> absl::Status {
      std::vector<float> values(own->rank() == 1 ? 20 : 10);
      return own->AllReduce(BytesIn(values),
                            ReductionOp(ElementKind::kFloat32, ElementOp::kSum),
                            Algorithm::kSplit,
                            TestDeadline());
    };

    const std::vector<absl::Status> results = OnRanks(2, channel, body);

    std::string all;
    for (const absl::Status& status : results) {
      EXPECT_FALSE(status.ok());
      all += std::string(status.message());
    }
    EXPECT_THAT(all, AllOf(HasSubstr("of 20 elements"), HasSubstr("of 10 elements")));
  }
}

TEST(CommunicatorTest, AWrongArgumentDisturbsNobody) {
  const auto body = [](const std::unique_ptr<Communicator>& own) -> absl::Status {
    std::vector<std::byte> values(6);
    const ReductionOp sum(ElementKind::kFloat32, ElementOp::kSum);
    EXPECT_EQ(own->AllReduce(values, sum, Algorithm::kRing, TestDeadline()).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(own->Broadcast(values, 2, Algorithm::kRing, TestDeadline()).code(),
              absl::StatusCode::kInvalidArgument);
    return own->Broadcast(values, 1, Algorithm::kRing, TestDeadline());
  };

  for (const absl::Status& status : OnRanks(2, LinkChannel::kTcp, body))
    EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace pushpull
