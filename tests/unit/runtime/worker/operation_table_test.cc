// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/operation_table.h"

#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::SizeIs;

class OperationTableTest : public testing::Test {
 protected:
  OperationTableTest() { Begin(operations_, Reduction::kMean); }

  // Tensor "w" of four values, beginning with step 3.
  void Begin(OperationTable& operations, Reduction reduction) {
    const TensorSpec spec{.name = "w", .dims = {4}, .reduction = reduction};
    const auto registration =
        std::make_shared<Registration>(std::vector<RegisteredTensor>{{.spec = spec, .value = out_}},
                                       std::make_shared<PendingOperation>("register"));
    registration->SetPlaces({{.spec = spec}});
    operations.Begin(*registration, Step{3}, {});
  }

  absl::StatusOr<OperationTable::Accepted> Push() {
    return operations_.MakePush("w", gradient_, out_, {}, {});
  }

  const std::array<float, 4> gradient_{};
  std::array<float, 4> out_{};
  OperationTable operations_{WorkerId{0}};
};

TEST_F(OperationTableTest, PushesAreNumbered) {
  EXPECT_EQ(operations_.start_step(), Step{3});

  ASSERT_TRUE(Push()->is_first);
  ASSERT_FALSE(Push()->is_first);
  const std::vector<TensorRequest> due = operations_.TakeDue();

  ASSERT_THAT(due, SizeIs(2));
  EXPECT_EQ(due[0].step, Step{3});
  EXPECT_EQ(due[1].step, Step{4});
  EXPECT_EQ(operations_.next_step(), Step{5});
}

TEST_F(OperationTableTest, UnknownTensorsAndWrongSizesAreRejected) {
  EXPECT_TRUE(absl::IsNotFound(operations_.MakePush("x", gradient_, out_, {}, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      operations_.MakePush("w", std::span(gradient_).first(3), out_, {}, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      operations_.MakePush("w", gradient_, std::span(out_).first(3), {}, {}).status()));
  // As many values, of another type.
  std::vector<std::byte> halves(2 * gradient_.size());
  EXPECT_TRUE(absl::IsInvalidArgument(
      operations_.MakePush("w", {DType::kFloat16, halves}, out_, {}, {}).status()));
}

TEST_F(OperationTableTest, NumbersOutOfRangeAreRejectedInEveryMode) {
  for (const SyncMode mode : {SyncMode::kSync, SyncMode::kAllReduce, SyncMode::kAsync}) {
    OperationTable operations{WorkerId{0}};
    Begin(operations, Reduction::kMean);
    operations.Continue(Step{0}, {.mode = mode});
    const auto refused = [&](const PushOptions& options) {
      return std::string(operations.MakePush("w", gradient_, out_, options, {}).status().message());
    };

    EXPECT_THAT(refused({.samples = -1}), testing::HasSubstr("tensor \"w\": samples must be 0"));
    EXPECT_THAT(refused({.learning_rate = std::nan("")}), testing::HasSubstr("learning rate must"));
    // They took no step.
    EXPECT_TRUE(operations.MakePush("w", gradient_, out_, {}, {}).ok());
    EXPECT_EQ(operations.TakeDue()[0].step, Step{0});
  }
}

TEST_F(OperationTableTest, PushWithoutAGradientNeedsNone) {
  ASSERT_TRUE(operations_.MakePush("w", {}, out_, {.has_gradient = false}, {}).ok());
  ASSERT_TRUE(operations_.MakePush("w", gradient_, out_, {.has_gradient = false}, {}).ok());

  for (const TensorRequest& request : operations_.TakeDue()) {
    EXPECT_FALSE(request.has_gradient);
    EXPECT_THAT(request.source, SizeIs(0));
  }
}

TEST_F(OperationTableTest, HeldPushStartsAfterResume) {
  operations_.Hold(std::nullopt, std::nullopt);

  const absl::StatusOr<OperationTable::Accepted> push = Push();

  ASSERT_TRUE(push.ok());
  EXPECT_FALSE(push->is_first);
  EXPECT_THAT(operations_.TakeDue(), SizeIs(0));
  operations_.Resume();
  EXPECT_THAT(operations_.TakeDue(), SizeIs(1));
}

TEST_F(OperationTableTest, DrainedWhenPushesBelowTheHoldHaveStarted) {
  ASSERT_TRUE(Push().ok());
  operations_.Hold(Step{4}, std::nullopt);
  EXPECT_FALSE(operations_.IsDrained());

  operations_.OnStarted(operations_.TakeDue().size());

  EXPECT_TRUE(operations_.IsDrained());
}

TEST_F(OperationTableTest, NoStepBeginsAfterTheLast) {
  operations_.EndSoon();

  EXPECT_TRUE(Push().ok());
  EXPECT_TRUE(absl::IsCancelled(Push().status()));
}

TEST_F(OperationTableTest, SkippedNumbersAreNotTheProgramsSteps) {
  operations_.Continue(Step{10}, {.steps_skipped = 4});

  EXPECT_EQ(operations_.next_step(), Step{6});
  EXPECT_EQ(operations_.next_step(OperationTable::Counted::kOnWire), Step{10});
}

class TwoTensorsTest : public testing::Test {
 protected:
  // Tensors "a" and "b", beginning with step 3.
  void BeginIn(const Consistency& mode) {
    const TensorSpec a{.name = "a", .dims = {4}};
    const TensorSpec b{.name = "b", .dims = {4}};
    const auto registration = std::make_shared<Registration>(
        std::vector<RegisteredTensor>{{.spec = a, .value = a_}, {.spec = b, .value = b_}},
        std::make_shared<PendingOperation>("register"));
    registration->SetPlaces({{.id = TensorId{0}, .spec = a}, {.id = TensorId{1}, .spec = b}});
    operations_.Begin(*registration, Step{3}, mode);
  }
  absl::Status Push(absl::string_view tensor) {
    return operations_.MakePush(tensor, gradient_, {}, {}, {}).status();
  }

  const std::array<float, 4> gradient_{};
  std::array<float, 4> a_{};
  std::array<float, 4> b_{};
  OperationTable operations_{WorkerId{1}};
};

TEST_F(TwoTensorsTest, APushThatLeavesATensorOutOfAStepIsRefusedByName) {
  BeginIn({});
  ASSERT_TRUE(Push("a").ok());
  ASSERT_TRUE(Push("b").ok());
  ASSERT_TRUE(Push("a").ok());

  const absl::Status refused = Push("a");

  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_EQ(
      refused.message(),
      "tensor \"b\": worker-1 has not pushed it in step 4 and pushes \"a\" for step 5: push each "
      "tensor once in every step, with zeros where there is no gradient, or never");
  EXPECT_TRUE(Push("b").ok());
  EXPECT_TRUE(Push("a").ok());
}

TEST_F(TwoTensorsTest, TheEndOfAStepNamesATensorThatWasLeftOut) {
  BeginIn({});
  ASSERT_TRUE(Push("a").ok());
  ASSERT_TRUE(Push("b").ok());
  ASSERT_TRUE(operations_.EndStep().ok());
  ASSERT_TRUE(Push("b").ok());

  const absl::Status ended = operations_.EndStep();

  EXPECT_TRUE(absl::IsFailedPrecondition(ended));
  EXPECT_TRUE(absl::StartsWith(
      ended.message(), "tensor \"a\": worker-1 has not pushed it in step 4, which is over: "));
  EXPECT_TRUE(absl::StartsWith(
      Push("a").message(),
      "tensor \"a\": worker-1 has not pushed it in step 4, which is over, and pushes it now: "));
}

TEST_F(TwoTensorsTest, AStepThatNeedsAllTensorsNamesOneThatIsNeverPushed) {
  for (const Consistency& mode : {Consistency{.gated = true},
                                  Consistency{.backup_workers = 1},
                                  Consistency{.mode = SyncMode::kAllReduce}}) {
    BeginIn(mode);
    ASSERT_TRUE(Push("a").ok());

    EXPECT_TRUE(absl::IsFailedPrecondition(operations_.EndStep())) << Describe(mode);
  }
}

TEST_F(TwoTensorsTest, InAsyncEachTensorHasItsOwnSteps) {
  BeginIn({.mode = SyncMode::kAsync});
  ASSERT_TRUE(Push("b").ok());

  EXPECT_TRUE(Push("a").ok());
  EXPECT_TRUE(Push("a").ok());
  EXPECT_TRUE(operations_.EndStep().ok());
}

}  // namespace
}  // namespace pushpull
