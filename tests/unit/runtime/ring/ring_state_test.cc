// SPDX-License-Identifier: Apache-2.0
#include "runtime/ring/ring_state.h"

#include <limits>
#include <vector>

#include "absl/algorithm/container.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/consistency/sample_queue.h"
#include "runtime/tensor/element_reduce.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Epoch kRing{.term = Term{1}, .counter = 4};

std::span<const std::byte> Bytes(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

PlacedTensor Placed(TensorSpec spec) {
  return {.id = TensorId{0}, .spec = std::move(spec), .first_chunk = ChunkId{0}, .shards = {}};
}

TensorSpec Weights(OptimizerSpec optimizer) {
  return {.name = "w", .dims = {2}, .optimizer = optimizer};
}

TensorSpec Samples() {
  TensorSpec spec{.name = std::string(kSampleQueueTensor),
                  .dims = {static_cast<int64_t>(SampleQueue::kBytes / sizeof(float))}};
  spec.reduction = Reduction::kSum;
  return spec;
}

std::vector<RingWorker> Workers(std::initializer_list<uint32_t> indices) {
  std::vector<RingWorker> workers;
  for (const uint32_t index : indices)
    workers.push_back({.worker = WorkerId{index}, .address = ""});
  return workers;
}

RingState Make(std::vector<TensorSpec> specs) {
  std::vector<PlacedTensor> tensors;
  for (TensorSpec& spec : specs) tensors.push_back(Placed(std::move(spec)));
  absl::StatusOr<RingState> state = RingState::Make(tensors);
  EXPECT_TRUE(state.ok()) << state.status();
  return *std::move(state);
}

// One step of ranks that reduce their parts in the order of the ranks.
absl::Status TakeStep(std::vector<RingState*> ranks,
                      const std::vector<std::vector<RingPush>>& pushes,
                      const std::vector<RingWorker>& workers,
                      uint64_t batch = 0) {
  const auto size = static_cast<uint32_t>(ranks.size());
  for (uint32_t i = 0; i < size; ++i) ranks[i]->Contribute(pushes[i], i, size, batch);
  for (uint32_t i = 1; i < size; ++i) {
    for (size_t k = 0; k < ranks[0]->facts().size(); ++k)
      ranks[0]->facts()[k] += ranks[i]->facts()[k];
    const std::vector<RingGradients> into = ranks[0]->gradients();
    const std::vector<RingGradients> from = ranks[i]->gradients();
    for (size_t k = 0; k < into.size(); ++k) {
      Reduce(ElementKind::kFloat32,
             into[k].op,
             std::as_writable_bytes(into[k].values),
             std::as_bytes(from[k].values));
    }
  }
  absl::Status status;
  for (RingState* rank : ranks) {
    absl::c_copy(ranks[0]->facts(), rank->facts().begin());
    const std::vector<RingGradients> into = rank->gradients();
    for (size_t k = 0; k < into.size(); ++k)
      absl::c_copy(ranks[0]->gradients()[k].values, into[k].values.begin());
  }
  for (RingState* rank : ranks) status.Update(rank->Apply(workers, kRing));
  return status;
}

TEST(RingStateTest, MeanIsWeightedBySamples) {
  RingState ann = Make({Weights({.kind = OptimizerKind::kSgd, .learning_rate = 1})});
  RingState bob = Make({Weights({.kind = OptimizerKind::kSgd, .learning_rate = 1})});
  const std::vector<float> low = {1, 2};
  const std::vector<float> high = {5, 6};

  const absl::Status taken =
      TakeStep({&ann, &bob},
               {{{.gradient = Bytes(low), .weight = 3}}, {{.gradient = Bytes(high), .weight = 1}}},
               Workers({0, 1}));

  EXPECT_TRUE(taken.ok()) << taken;
  EXPECT_THAT(ann.value(0), ElementsAre(-2, -3));
  EXPECT_THAT(bob.value(0), ElementsAre(-2, -3));
  EXPECT_EQ(ann.mark(), (RingMark{.made_in = kRing, .step = Step{1}}));
}

TensorSpec Reduced(Reduction reduction) {
  TensorSpec spec = Weights({.kind = OptimizerKind::kSum});
  spec.reduction = reduction;
  return spec;
}

TEST(RingStateTest, EachTensorIsReducedInItsOwnWay) {
  const std::vector<TensorSpec> specs = {Reduced(Reduction::kMax),
                                         Reduced(Reduction::kSum),
                                         Reduced(Reduction::kMin),
                                         Reduced(Reduction::kMax)};
  RingState ann = Make(specs);
  RingState bob = Make(specs);
  const std::vector<float> low = {-1, 7};
  const std::vector<float> high = {-5, 9};

  const absl::Status taken = TakeStep({&ann, &bob},
                                      {std::vector<RingPush>(4, {.gradient = Bytes(low)}),
                                       std::vector<RingPush>(4, {.gradient = Bytes(high)})},
                                      Workers({0, 1}));

  EXPECT_TRUE(taken.ok()) << taken;
  for (const RingState* rank : {&ann, &bob}) {
    EXPECT_THAT(rank->value(0), ElementsAre(-1, 9));
    EXPECT_THAT(rank->value(1), ElementsAre(-6, 16));
    EXPECT_THAT(rank->value(2), ElementsAre(-5, 7));
    EXPECT_THAT(rank->value(3), ElementsAre(-1, 9));
  }
}

TEST(RingStateTest, PushWithoutGradientHasNoPartInMaximum) {
  RingState ann = Make({Reduced(Reduction::kMax)});
  RingState bob = Make({Reduced(Reduction::kMax)});
  const std::vector<float> values = {-3, -4};
  const RingPush nothing = {.has_gradient = false};

  EXPECT_TRUE(
      TakeStep({&ann, &bob}, {{nothing}, {{.gradient = Bytes(values)}}}, Workers({0, 1})).ok());
  EXPECT_THAT(ann.value(0), ElementsAre(-3, -4));

  // If none counts the value stays.
  EXPECT_TRUE(TakeStep({&ann, &bob}, {{nothing}, {nothing}}, Workers({0, 1})).ok());
  EXPECT_THAT(ann.value(0), ElementsAre(-3, -4));
  EXPECT_FALSE(ann.had_gradient(0));
}

TEST(RingStateTest, ContributionWithoutSamplesHasNoPartWhateverItIs) {
  RingState ann = Make({Weights({.kind = OptimizerKind::kSgd, .learning_rate = 1})});
  RingState bob = Make({Weights({.kind = OptimizerKind::kSgd, .learning_rate = 1})});
  const std::vector<float> good = {1, 2};
  const std::vector<float> bad(2, std::numeric_limits<float>::quiet_NaN());

  const absl::Status taken =
      TakeStep({&ann, &bob},
               {{{.gradient = Bytes(good), .weight = 3}}, {{.gradient = Bytes(bad), .weight = 0}}},
               Workers({0, 1}));

  EXPECT_TRUE(taken.ok()) << taken;
  EXPECT_THAT(bob.value(0), ElementsAre(-1, -2));
}

TEST(RingStateTest, StepWithoutAnySamplesChangesNoValue) {
  RingState ann = Make({Weights({.kind = OptimizerKind::kAdam, .learning_rate = 1})});
  const std::vector<float> gradient = {1, 2};

  EXPECT_TRUE(TakeStep({&ann}, {{{.gradient = Bytes(gradient), .weight = 0}}}, Workers({0})).ok());

  EXPECT_THAT(ann.value(0), ElementsAre(0, 0));
  EXPECT_EQ(ann.updates(0), 0U);
  EXPECT_EQ(ann.mark().step, Step{1});
}

TEST(RingStateTest, LearningRateIsThatOfTheLowestRank) {
  RingState ann = Make({Weights({.kind = OptimizerKind::kSgd, .learning_rate = 1})});
  RingState bob = Make({Weights({.kind = OptimizerKind::kSgd, .learning_rate = 1})});
  const std::vector<float> gradient = {1, 2};

  const absl::Status taken = TakeStep({&ann, &bob},
                                      {{{.gradient = Bytes(gradient), .learning_rate = 0.5}},
                                       {{.gradient = Bytes(gradient), .learning_rate = 9}}},
                                      Workers({0, 1}));

  EXPECT_TRUE(taken.ok()) << taken;
  EXPECT_THAT(bob.value(0), ElementsAre(-0.5, -1));
}

TEST(RingStateTest, SumThatIsNotFiniteIsNamedAndChangesNothing) {
  RingState ann = Make({Weights({.kind = OptimizerKind::kSgd, .learning_rate = 1})});
  const std::vector<float> gradient = {1, std::numeric_limits<float>::infinity()};

  const absl::Status taken = TakeStep({&ann}, {{{.gradient = Bytes(gradient)}}}, Workers({0}));

  EXPECT_EQ(taken.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(taken.message()), HasSubstr("tensor \"w\" in step 0"));
  EXPECT_THAT(ann.value(0), ElementsAre(0, 0));
  EXPECT_EQ(ann.mark().step, Step{0});
}

TEST(RingStateTest, CopyHasValuesStateAndUpdates) {
  const OptimizerSpec momentum{.kind = OptimizerKind::kSgd, .learning_rate = 1, .momentum = 0.5};
  RingState ann = Make({Weights(momentum)});
  RingState cid = Make({Weights(momentum)});
  const std::vector<float> gradient = {1, 2};
  EXPECT_TRUE(TakeStep({&ann}, {{{.gradient = Bytes(gradient)}}}, Workers({0})).ok());

  const auto from = ann.CopyParts();
  const auto to = cid.CopyParts();
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) absl::c_copy(from[i], to[i].begin());
  cid.TakeCopy(ann.mark());

  EXPECT_EQ(cid.mark(), ann.mark());
  EXPECT_EQ(cid.updates(0), 1U);
  EXPECT_THAT(cid.value(0), ElementsAre(-1, -2));
  EXPECT_THAT(cid.optimizer_state(0), ElementsAre(1, 2));
}

TEST(RingStateTest, StepWithoutAnyGradientRunsNoOptimizer) {
  const OptimizerSpec decayed{
      .kind = OptimizerKind::kSgd, .learning_rate = 1, .momentum = 0.5, .weight_decay = 0.5};
  RingState ann = Make({Weights(decayed), Weights({})});
  RingState bob = Make({Weights(decayed), Weights({})});
  const std::vector<float> gradient = {1, 2};
  const std::vector<RingPush> push(2, {.gradient = Bytes(gradient)});
  const std::vector<RingPush> none(2, {.gradient = {}, .has_gradient = false});
  ASSERT_TRUE(TakeStep({&ann, &bob}, {push, push}, Workers({0, 1})).ok());
  ASSERT_TRUE(ann.had_gradient(0));

  const absl::Status taken = TakeStep({&ann, &bob}, {none, none}, Workers({0, 1}));

  EXPECT_TRUE(taken.ok()) << taken;
  for (const RingState* state : {&ann, &bob}) {
    EXPECT_THAT(state->value(0), ElementsAre(-1, -2));
    EXPECT_THAT(state->optimizer_state(0), ElementsAre(1, 2));
    EXPECT_EQ(state->updates(0), 1U);
    EXPECT_FALSE(state->had_gradient(0));
    EXPECT_THAT(state->value(1), ElementsAre(0, 0));  // Sum
    EXPECT_EQ(state->mark().step, Step{2});
  }
}

TEST(RingStateTest, RankWithoutAGradientContributesZeros) {
  RingState ann = Make({Weights({.kind = OptimizerKind::kSgd, .learning_rate = 1})});
  RingState bob = Make({Weights({.kind = OptimizerKind::kSgd, .learning_rate = 1})});
  const std::vector<float> gradient = {4, 8};

  const absl::Status taken = TakeStep(
      {&ann, &bob},
      {{{.gradient = {}, .weight = 3, .has_gradient = false}}, {{.gradient = Bytes(gradient)}}},
      Workers({0, 1}));

  EXPECT_TRUE(taken.ok()) << taken;
  EXPECT_THAT(ann.value(0), ElementsAre(-1, -2));
  EXPECT_TRUE(ann.had_gradient(0));
  EXPECT_EQ(ann.updates(0), 1U);
}

TEST(RingStateTest, CopySaysWhetherItsStepHadAGradient) {
  RingState ann = Make({Weights({})});
  RingState cid = Make({Weights({})});
  ASSERT_TRUE(TakeStep({&ann}, {{{.gradient = {}, .has_gradient = false}}}, Workers({0})).ok());

  const auto from = ann.CopyParts();
  const auto to = cid.CopyParts();
  for (size_t i = 0; i < from.size(); ++i) absl::c_copy(from[i], to[i].begin());

  EXPECT_FALSE(cid.had_gradient(0));
}

TEST(RingStateTest, HalvesAreSummedAndKeptAsFloat32) {
  TensorSpec spec = Weights({.kind = OptimizerKind::kSgd, .learning_rate = 1});
  spec.dtype = DType::kBFloat16;
  RingState ann = Make({spec});
  RingState bob = Make({spec});
  const std::vector<uint16_t> initial = {0x4380, 0x3f80};   // 256, 1
  const std::vector<uint16_t> gradient = {0xbf00, 0x3f80};  // -0.5, 1
  const auto bytes_of = [](const auto& values) { return std::as_bytes(std::span(values)); };
  for (RingState* state : {&ann, &bob}) state->SetInitial(0, bytes_of(initial), {}, 0);

  const std::vector<RingPush> push = {{.gradient = bytes_of(gradient)}};
  ASSERT_TRUE(TakeStep({&ann, &bob}, {push, push}, Workers({0, 1})).ok());

  // 256.5 is no bfloat16: of such updates the sum over many steps would be 256.
  EXPECT_THAT(ann.value(0), ElementsAre(256.5, 0));
  std::vector<uint16_t> read(2);
  EXPECT_EQ(ann.WriteValue(0, std::as_writable_bytes(std::span(read))), 0U);
  EXPECT_THAT(read, ElementsAre(0x4380, 0));
}

TEST(RingStateTest, ValuesThatAreTooLargeForTheTypeAreCounted) {
  TensorSpec spec = Weights({.kind = OptimizerKind::kSgd, .learning_rate = 100'000});
  spec.dtype = DType::kFloat16;
  RingState ann = Make({spec});
  const std::vector<uint16_t> gradient = {0x3c00, 0};  // 1, 0

  ASSERT_TRUE(
      TakeStep({&ann}, {{{.gradient = std::as_bytes(std::span(gradient))}}}, Workers({0})).ok());

  std::vector<uint16_t> read(2);
  EXPECT_EQ(ann.WriteValue(0, std::as_writable_bytes(std::span(read))), 1U);
  EXPECT_THAT(read, ElementsAre(0xfc00, 0));
  EXPECT_THAT(ann.value(0), ElementsAre(-100'000, 0));
}

class RingSamplesTest : public ::testing::Test {
 protected:
  static RingState WithQueue(uint64_t batch) {
    RingState state = Make({Samples()});
    const std::vector<std::byte> bytes =
        SampleQueue({.num_samples = 100, .epochs = 1, .batch = batch}).Encode();
    state.SetInitial(0, bytes, {}, 0);
    return state;
  }
  static StepSamples ShareOf(const RingState& state, uint32_t worker, uint64_t step) {
    return SampleQueue::Decode(std::as_bytes(state.value(0)))
        ->ShareOf(WorkerId{worker}, Step{step});
  }

  std::vector<float> zeros_ = std::vector<float>(SampleQueue::kBytes / sizeof(float));
};

TEST_F(RingSamplesTest, SamplesOfAWorkerThatIsGoneComeBack) {
  RingState ann = WithQueue(10);
  ASSERT_TRUE(ann.Begin({}, Workers({0, 1})).ok());
  EXPECT_EQ(ShareOf(ann, 0, 0).count, 10U);
  EXPECT_EQ(ShareOf(ann, 1, 0).count, 10U);

  ASSERT_TRUE(TakeStep({&ann}, {{{.gradient = Bytes(zeros_)}}}, Workers({0})).ok());

  const StepSamples next = ShareOf(ann, 0, 1);
  EXPECT_EQ(next.count, 10U);
  EXPECT_EQ(next.ranges.front().first, 10U);  // what the other one had
  EXPECT_EQ(ShareOf(ann, 1, 1).count, 0U);
}

TEST_F(RingSamplesTest, JoinerHasSamplesFromTheNextStepOn) {
  RingState ann = WithQueue(10);
  RingState bob = WithQueue(10);
  ASSERT_TRUE(ann.Begin({}, Workers({0})).ok());
  ASSERT_TRUE(bob.Begin({}, Workers({0})).ok());
  EXPECT_EQ(ShareOf(bob, 1, 0).count, 0U);

  const std::vector<RingPush> push = {{.gradient = Bytes(zeros_)}};
  ASSERT_TRUE(TakeStep({&ann, &bob}, {push, push}, Workers({0, 1})).ok());

  EXPECT_EQ(ShareOf(ann, 0, 1).count, 10U);
  EXPECT_EQ(ShareOf(bob, 1, 1).count, 10U);
}

TEST_F(RingSamplesTest, WorkerThatLeavesGetsNoFurtherSamples) {
  RingState ann = WithQueue(10);
  RingState bob = WithQueue(10);
  ASSERT_TRUE(ann.Begin({}, Workers({0, 1})).ok());
  ASSERT_TRUE(bob.Begin({}, Workers({0, 1})).ok());

  const absl::Status taken = TakeStep(
      {&ann, &bob},
      {{{.gradient = Bytes(zeros_), .weight = 1}}, {{.gradient = Bytes(zeros_), .weight = 0}}},
      Workers({0, 1}));

  EXPECT_TRUE(taken.ok()) << taken;
  EXPECT_EQ(ShareOf(ann, 1, 1).count, 0U);
  EXPECT_EQ(ShareOf(ann, 0, 1).ranges.front().first, 20U);
}

TEST_F(RingSamplesTest, SizeOfTheNextEpochIsThatOfTheLowestRank) {
  RingState ann = WithQueue(100);
  ASSERT_TRUE(ann.Begin({}, Workers({0})).ok());
  const std::vector<RingPush> push = {{.gradient = Bytes(zeros_), .learning_rate = 70}};

  ASSERT_TRUE(TakeStep({&ann}, {push}, Workers({0})).ok());
  EXPECT_EQ(ShareOf(ann, 0, 1).epoch, 1U);
  ASSERT_TRUE(TakeStep({&ann}, {push}, Workers({0})).ok());

  EXPECT_EQ(ShareOf(ann, 0, 2).epoch, 2U);
  EXPECT_EQ(ShareOf(ann, 0, 2).total, 70U);
}

TEST_F(RingSamplesTest, BatchOfTheJobIsThatOfTheLowestRank) {
  RingState ann = WithQueue(10);
  ASSERT_TRUE(ann.Begin({}, Workers({0})).ok());

  ASSERT_TRUE(TakeStep({&ann}, {{{.gradient = Bytes(zeros_)}}}, Workers({0}), 24).ok());

  EXPECT_EQ(ShareOf(ann, 0, 1).count, 24U);
  EXPECT_EQ(ann.Batch(), 24U);
}

}  // namespace
}  // namespace pushpull
