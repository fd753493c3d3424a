// SPDX-License-Identifier: Apache-2.0
//
// Every collective with every algorithm, on all ranks together, over links in memory: right values,
// the same bits everywhere, and nobody waits in a circle, however little room links have.
#include "runtime/collective/schedule_runner.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/collective/memory_links.h"
#include "tests/unit/runtime/collective/rank_arrays.h"
#include "tests/unit/runtime/tensor/element_lists.h"

namespace pushpull {
namespace {

// A header, which is the least that a link has room for.
constexpr size_t kLeastRoom = kCallHeaderBytes;

struct RunOptions {
  ScheduleRequest request;
  size_t capacity = 4096;
  bool can_expose = false;
};

// Lets all ranks make a call in turns. Returns what went wrong.
absl::Status RunAll(const RunOptions& options, const ReductionOp& op, RankArrays& arrays) {
  const auto ranks = static_cast<size_t>(options.request.ranks);
  std::vector<LinkSet> mesh = MakeMemoryMesh(ranks, options.capacity, options.can_expose);
  std::vector<std::unique_ptr<PreparedSchedule>> schedules;
  std::vector<std::unique_ptr<ScheduleRunner>> runners;
  RankArrays scratch(ranks, std::vector<std::byte>(arrays[0].size()));
  ScheduleRequest request = options.request;
  request.elements = arrays[0].size() / op.element_bytes();
  request.needs_finish = op.NeedsFinish(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    request.rank = static_cast<int>(rank);
    schedules.push_back(std::make_unique<PreparedSchedule>(MakeSchedule(request)));
    runners.push_back(std::make_unique<ScheduleRunner>(mesh[rank]));
    runners.back()->Begin({.schedule = schedules.back().get(),
                           .header = {.sequence = 1,
                                      .collective = request.collective,
                                      .algorithm = request.algorithm,
                                      .root = static_cast<uint32_t>(request.root),
                                      .element_bytes = static_cast<uint32_t>(op.element_bytes()),
                                      .elements = request.elements},
                           .ranks = ranks,
                           .values = arrays[rank],
                           .scratch = scratch[rank],
                           .op = &op});
  }
  while (true) {
    bool has_moved = false;
    bool are_done = true;
    for (const auto& runner : runners) {
      const absl::StatusOr<bool> moved = runner->Advance();
      if (!moved.ok()) return moved.status();
      // Otherwise a communicator would sleep with work to do.
      if (!*moved && *runner->Advance()) return absl::InternalError("moves after all");
      has_moved = has_moved || *moved;
      are_done = are_done && runner->is_done();
    }
    if (are_done) return absl::OkStatus();
    if (!has_moved) return absl::InternalError("all ranks wait for each other");
  }
}

// Empty: `arrays` are what the collective makes of `inputs`.
std::string WrongWithAll(const ScheduleRequest& request,
                         ElementKind kind,
                         ElementOp op,
                         const RankArrays& inputs,
                         const RankArrays& arrays) {
  const uint64_t elements = inputs[0].size() / ElementBytes(kind);
  for (int rank = 0; rank < request.ranks; ++rank) {
    const bool is_scattered = request.collective == Collective::kReduceScatter;
    const ElementRange range =
        is_scattered ? PieceOf(elements, request.ranks, rank) : ElementRange{0, elements};
    const std::vector<std::byte>& array = arrays[static_cast<size_t>(rank)];
    if (!is_scattered && array != arrays[0]) return "other bits on rank " + std::to_string(rank);
    if (!is_scattered && rank > 0) continue;
    const std::string wrong = WrongWith(kind, op, inputs, range, array);
    if (!wrong.empty()) return "rank " + std::to_string(rank) + ": " + wrong;
  }
  return "";
}

void ExpectReduces(const RunOptions& options, ElementKind kind, ElementOp op, uint64_t elements) {
  const RankArrays inputs =
      RandomArrays(kind, static_cast<size_t>(options.request.ranks), elements);
  RankArrays arrays = inputs;

  const absl::Status status = RunAll(options, ReductionOp(kind, op), arrays);

  const std::string wrong = WrongWithAll(options.request, kind, op, inputs, arrays);
  const std::string what = ToString(options.request.algorithm) + " of " +
                           std::to_string(options.request.ranks) + " ranks, " +
                           std::to_string(elements) + " " + ToString(kind) + " " + ToString(op);
  EXPECT_TRUE(status.ok()) << what << ": " << status;
  EXPECT_EQ(wrong, "") << what;
}

void ExpectAllKindsAndOps(const RunOptions& options, uint64_t elements) {
  for (const ElementKind kind : kElementKinds) {
    for (const ElementOp op : kElementOps) ExpectReduces(options, kind, op, elements);
  }
}

TEST(ScheduleRunnerTest, ReducesEveryTypeByEveryAlgorithm) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter}) {
    for (const Algorithm algorithm : AllAlgorithms()) {
      for (int ranks = 1; ranks <= 8; ++ranks) {
        for (const uint64_t elements : {0U, 1U, 101U}) {
          ExpectAllKindsAndOps(
              {.request = {.collective = collective, .algorithm = algorithm, .ranks = ranks}},
              elements);
        }
      }
    }
  }
}

// Large enough to be exposed: each piece of the largest arrays, none of the smallest.
TEST(ScheduleRunnerTest, ReducesExposedArrays) {
  for (const Algorithm algorithm : AllAlgorithms()) {
    for (int ranks = 2; ranks <= 5; ++ranks) {
      for (const uint64_t block_elements : {0U, 30'000U}) {
        for (const uint64_t elements : {1001U, 100'001U}) {
          ExpectReduces({.request = {.algorithm = algorithm,
                                     .ranks = ranks,
                                     .block_elements = block_elements},
                         .capacity = kLeastRoom,
                         .can_expose = true},
                        ElementKind::kInt32,
                        ElementOp::kSum,
                        elements);
        }
      }
    }
  }
}

// By hand, with --gtest_also_run_disabled_tests: takes minutes and two gigabytes. Numbers of ranks
// come in turn.
TEST(ScheduleRunnerTest, DISABLED_ReducesLargeArrays) {
  int turn = 0;
  for (const Algorithm algorithm : AllAlgorithms()) {
    for (const ElementKind kind : kElementKinds) {
      for (const ElementOp op : kElementOps) {
        const RunOptions options = {
            .request = {.algorithm = algorithm, .ranks = 1 + turn++ % 8, .block_elements = 1 << 19},
            .capacity = 1 << 20};
        ExpectReduces(options, kind, op, (64U << 20) / ElementBytes(kind));
      }
    }
  }
}

// As much as is sent in any state of a rank must be taken by another one: with room for a header
// only, each rank soon waits for room in all of its links.
TEST(ScheduleRunnerTest, NobodyWaitsInACircle) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter}) {
    for (const Algorithm algorithm : AllAlgorithms()) {
      for (int ranks = 2; ranks <= 9; ++ranks) {
        ExpectReduces(
            {.request = {.collective = collective, .algorithm = algorithm, .ranks = ranks},
             .capacity = kLeastRoom},
            ElementKind::kFloat32,
            ElementOp::kSum,
            701);
      }
    }
  }
}

// The last block is smaller than the others, and of less than an element for each rank.
TEST(ScheduleRunnerTest, LargeArraysAreReducedInBlocks) {
  for (const Algorithm algorithm : AllAlgorithms()) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const uint64_t elements : {101U, 203U, 1000U}) {
        const RunOptions options = {
            .request = {.algorithm = algorithm, .ranks = ranks, .block_elements = 100},
            .capacity = kLeastRoom};
        ExpectReduces(options, ElementKind::kFloat32, ElementOp::kMean, elements);
        ExpectReduces(options, ElementKind::kInt8, ElementOp::kSum, elements);
      }
    }
  }
}

TEST(ScheduleRunnerTest, GathersThePiecesOfAll) {
  constexpr uint64_t kElements = 701;
  const ReductionOp op(ElementKind::kInt32, ElementOp::kSum);
  for (const Algorithm algorithm : AllAlgorithms()) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      SCOPED_TRACE(ToString(algorithm) + " of " + std::to_string(ranks));
      const std::vector<std::byte> whole = RandomArray(ElementKind::kInt32, kElements, 7);
      RankArrays arrays;
      for (int rank = 0; rank < ranks; ++rank) {
        const ElementRange piece = PieceOf(kElements, ranks, rank);
        arrays.emplace_back(whole.size());
        std::copy_n(whole.begin() + static_cast<ptrdiff_t>(4 * piece.begin),
                    4 * piece.size(),
                    arrays.back().begin() + static_cast<ptrdiff_t>(4 * piece.begin));
      }

      const absl::Status status = RunAll({.request = {.collective = Collective::kAllGather,
                                                      .algorithm = algorithm,
                                                      .ranks = ranks},
                                          .capacity = kLeastRoom},
                                         op,
                                         arrays);

      ASSERT_TRUE(status.ok()) << status;
      EXPECT_THAT(arrays, testing::Each(whole));
    }
  }
}

TEST(ScheduleRunnerTest, BroadcastsFromAnyRoot) {
  const ReductionOp op(ElementKind::kInt8, ElementOp::kSum);
  for (const Algorithm algorithm : AllAlgorithms()) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (int root = 0; root < ranks; ++root) {
        SCOPED_TRACE(ToString(algorithm) + " of " + std::to_string(ranks) + " from " +
                     std::to_string(root));
        RankArrays arrays = RandomArrays(ElementKind::kInt8, static_cast<size_t>(ranks), 701);
        const std::vector<std::byte> of_root = arrays[static_cast<size_t>(root)];

        const absl::Status status = RunAll({.request = {.collective = Collective::kBroadcast,
                                                        .algorithm = algorithm,
                                                        .ranks = ranks,
                                                        .root = root},
                                            .capacity = kLeastRoom},
                                           op,
                                           arrays);

        ASSERT_TRUE(status.ok()) << status;
        EXPECT_THAT(arrays, testing::Each(of_root));
      }
    }
  }
}

// Twelve bytes, of which no power of two is a multiple.
struct Best {
  float value;
  int32_t rank;
  int32_t index;
};

TEST(ScheduleRunnerTest, ReducesByAnOperationOfTheProgram) {
  const Best worst = {-1e30F, -1, -1};
  const std::span<const std::byte> identity = std::as_bytes(std::span(&worst, 1));
  const absl::StatusOr<ReductionOp> op =
      ReductionOp::Custom("best of all",
                          {identity.begin(), identity.end()},
                          [](std::span<std::byte> into, std::span<const std::byte> from) {
                            for (size_t at = 0; at < into.size(); at += sizeof(Best)) {
                              Best a;
                              Best b;
                              std::memcpy(&a, into.data() + at, sizeof a);
                              std::memcpy(&b, from.data() + at, sizeof b);
                              if (b.value > a.value) std::memcpy(into.data() + at, &b, sizeof b);
                            }
                          });
  ASSERT_TRUE(op.ok()) << op.status();
  constexpr int32_t kElements = 50;
  for (const Algorithm algorithm : AllAlgorithms()) {
    SCOPED_TRACE(ToString(algorithm));
    RankArrays arrays;
    for (int32_t rank = 0; rank < 5; ++rank) {
      std::vector<Best> own;
      own.reserve(kElements);
      for (int32_t i = 0; i < kElements; ++i)
        own.push_back({static_cast<float>((i * 7 + rank * 3) % 5), rank, i});
      const std::span<const std::byte> bytes = std::as_bytes(std::span(own));
      arrays.emplace_back(bytes.begin(), bytes.end());
    }

    const absl::Status status =
        RunAll({.request = {.algorithm = algorithm, .ranks = 5}, .capacity = 100}, *op, arrays);

    ASSERT_TRUE(status.ok()) << status;
    for (int32_t i = 0; i < kElements; ++i) {
      Best found;
      std::memcpy(&found, arrays[3].data() + static_cast<size_t>(i) * sizeof found, sizeof found);
      EXPECT_EQ(found.value, 4.0F);
      EXPECT_EQ((i * 7 + found.rank * 3) % 5, 4);
      EXPECT_EQ(found.index, i);
    }
  }
}

TEST(ScheduleRunnerTest, ASmallCallIsOneMoveAndCountsItsBytes) {
  std::vector<LinkSet> mesh = MakeMemoryMesh(2, 4096);
  const ReductionOp op(ElementKind::kFloat32, ElementOp::kSum);
  std::vector<float> values = {1, 2, 3, 4};
  const PreparedSchedule schedule(MakeSchedule({.ranks = 2, .elements = 4}));
  ScheduleRunner runner(mesh[0]);
  runner.Begin({.schedule = &schedule,
                .header = {.element_bytes = 4, .elements = 4},
                .ranks = 2,
                .values = std::as_writable_bytes(std::span(values)),
                .op = &op});

  const absl::StatusOr<bool> moved = runner.Advance();

  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_TRUE(*moved);
  EXPECT_EQ(runner.bytes_sent(), 8U);
  EXPECT_TRUE(runner.Wants()[1].bytes);
  EXPECT_FALSE(runner.Wants()[1].room);
}

TEST(ScheduleRunnerTest, AnotherCallOfAPeerIsNamed) {
  std::vector<LinkSet> mesh = MakeMemoryMesh(2, 4096);
  const ReductionOp op(ElementKind::kFloat32, ElementOp::kSum);
  std::vector<std::byte> few(16);
  std::vector<std::byte> many(64);
  const PreparedSchedule of_few(MakeSchedule({.ranks = 2, .elements = 4}));
  const PreparedSchedule of_many(MakeSchedule({.ranks = 2, .rank = 1, .elements = 16}));
  ScheduleRunner one(mesh[0]);
  ScheduleRunner other(mesh[1]);
  one.Begin({.schedule = &of_few,
             .header = {.sequence = 5, .element_bytes = 4, .elements = 4},
             .ranks = 2,
             .values = few,
             .op = &op});
  other.Begin({.schedule = &of_many,
               .header = {.sequence = 5, .element_bytes = 4, .elements = 16},
               .ranks = 2,
               .values = many,
               .op = &op});
  ASSERT_TRUE(one.Advance().ok());

  const absl::Status status = other.Advance().status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      testing::AllOf(testing::HasSubstr("of 4 elements"), testing::HasSubstr("of 16 elements")));
  EXPECT_EQ(other.failure().peer, 0);
}

TEST(ScheduleRunnerTest, ALinkThatIsGoneIsNamed) {
  std::vector<LinkSet> mesh = MakeMemoryMesh(3, 4096);
  const ReductionOp op(ElementKind::kFloat32, ElementOp::kSum);
  std::vector<std::byte> values(16);
  const PreparedSchedule schedule(MakeSchedule({.ranks = 3, .elements = 4}));
  ScheduleRunner runner(mesh[0]);
  runner.Begin({.schedule = &schedule,
                .header = {.element_bytes = 4, .elements = 4},
                .ranks = 3,
                .values = values,
                .op = &op});
  ASSERT_TRUE(runner.Advance().ok());

  mesh[2].links.clear();
  const absl::Status status = runner.Advance().status();

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(runner.failure().peer, 2);
}

}  // namespace
}  // namespace pushpull
