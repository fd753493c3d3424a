// SPDX-License-Identifier: Apache-2.0
//
// The sum of a group's contributions against what a server makes of the same contributions one by
// one.
#include "runtime/worker/joint_sum.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/store/step_accumulator.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::Pointwise;

constexpr Step kSummedStep{7};
constexpr Incarnation kEarlierProcess{11};
constexpr Incarnation kLaterProcess{22};

struct WeightedValues {
  std::vector<float> values;
  double weight = 1;
};

std::vector<float> MeanOf(const StepAccumulator& accumulator) {
  std::vector<float> mean;
  for (const float value : accumulator.sum())
    mean.push_back(static_cast<float>(value * accumulator.scale()));
  return mean;
}

std::vector<WorkerId> ContributorsOf(const JointPush& push) {
  std::vector<WorkerId> workers;
  for (const Contribution& contribution : push.contributors) workers.push_back(contribution.worker);
  return workers;
}

class JointSumTest : public testing::Test {
 protected:
  HostBuffer BufferOf(const std::vector<float>& values) {
    HostBuffer buffer = *buffers_->Take(values.size() * sizeof(float));
    std::ranges::copy(values, buffer.floats().begin());
    return buffer;
  }
  static Contribution Who(uint32_t worker,
                          double weight = 1,
                          Incarnation incarnation = kEarlierProcess) {
    return {.worker = WorkerId{worker},
            .incarnation = incarnation,
            .weight = weight,
            .learning_rate = worker + 0.5,
            .step = kSummedStep};
  }
  JointPart Received(uint32_t worker, const WeightedValues& gradient) {
    return {.who = Who(worker, gradient.weight), .values = BufferOf(gradient.values)};
  }
  static JointPart Own(uint32_t worker, const WeightedValues& gradient) {
    return {.who = Who(worker, gradient.weight), .own = gradient.values};
  }
  std::shared_ptr<JointPush> SumOf(const std::vector<WeightedValues>& gradients,
                                   Reduction reduction) {
    JointSum sum(kSummedStep);
    for (uint32_t i = 0; i < gradients.size(); ++i) sum.Add(Received(i, gradients[i]));
    return sum.Reduce(reduction, *buffers_);
  }

  const std::shared_ptr<GroupBuffers> buffers_ = std::make_shared<GroupBuffers>();
};

// The members push first, then a worker that is in no group.
TEST_F(JointSumTest, AServerGetsTheMeanOfSinglePushes) {
  const WeightedValues outsider{{1, 1, 1}, 4};
  for (const std::vector<double>& weights : std::vector<std::vector<double>>{
           {3, 5, 8}, {0, 5, 8}, {3, 0, 8}, {0, 0, 8}, {3, 5, 0}, {0.5, 0.25, 0.1}}) {
    const std::vector<WeightedValues> gradients = {{{0.1F, -7, 1e-6F}, weights[0]},
                                                   {{0.3F, 2, -1e6F}, weights[1]},
                                                   {{-5, 0.7F, 3}, weights[2]}};
    StepAccumulator single(Reduction::kMean, 12);
    for (const WeightedValues& gradient : gradients) {
      HostBuffer buffer = BufferOf(gradient.values);
      single.Add(buffer, gradient.weight);
    }
    single.AddTo(outsider.values, outsider.weight);

    const std::shared_ptr<JointPush> push = SumOf(gradients, Reduction::kMean);
    ASSERT_NE(push, nullptr);
    StepAccumulator joint(Reduction::kMean, 12);
    joint.Add(push->sum, {push->unit, std::reduce(weights.begin(), weights.end())});
    joint.AddTo(outsider.values, outsider.weight);

    EXPECT_GT(push->unit, 0);
    EXPECT_THAT(ContributorsOf(*push), ElementsAre(WorkerId{0}, WorkerId{1}, WorkerId{2}));
    EXPECT_THAT(MeanOf(joint), Pointwise(FloatEq(), MeanOf(single)))
        << testing::PrintToString(weights);
  }
}

TEST_F(JointSumTest, OtherReductionsIgnoreWeights) {
  const std::vector<WeightedValues> gradients = {{{4, -1}, 0}, {{0.5F, 2}, 6}};

  const auto sum = SumOf(gradients, Reduction::kSum);
  const auto least = SumOf(gradients, Reduction::kMin);
  const auto product = SumOf(gradients, Reduction::kProd);

  ASSERT_TRUE(sum != nullptr && least != nullptr && product != nullptr);
  EXPECT_THAT(sum->sum.floats(), ElementsAre(4.5F, 1));
  EXPECT_THAT(least->sum.floats(), ElementsAre(0.5F, -1));
  EXPECT_THAT(product->sum.floats(), ElementsAre(2, -2));
  for (const auto& push : {sum, least, product}) EXPECT_GT(push->unit, 0);  // servers refuse 0
}

// In another order these sums are other numbers.
TEST_F(JointSumTest, TheOrderOfArrivalDoesNotChangeABit) {
  const std::vector<WeightedValues> gradients = {
      {{1e8F, 0.1F}, 1}, {{1, 0.7F}, 1}, {{-1e8F, 0.3F}, 3}, {{3, 1e-9F}, 2}};
  const std::shared_ptr<JointPush> expected = SumOf(gradients, Reduction::kMean);
  ASSERT_NE(expected, nullptr);
  std::vector<uint32_t> order(gradients.size());
  std::iota(order.begin(), order.end(), 0U);
  do {
    JointSum sum(kSummedStep);
    for (const uint32_t worker : order) {
      const bool is_own = worker == order.back();
      sum.Add(is_own ? Own(worker, gradients[worker]) : Received(worker, gradients[worker]));
    }
    const std::shared_ptr<JointPush> push = sum.Reduce(Reduction::kMean, *buffers_);

    ASSERT_NE(push, nullptr);
    ASSERT_EQ(push->sum.num_bytes(), expected->sum.num_bytes());
    EXPECT_EQ(std::memcmp(push->sum.bytes().data(), expected->sum.bytes().data(), 8), 0)
        << testing::PrintToString(order);
    EXPECT_EQ(push->unit, 1);
    EXPECT_EQ(push->learning_rate, 0.5);
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(JointSumTest, TheProgramsMemoryIsOnlyRead) {
  const WeightedValues own{{1, 2}, 2};
  JointSum sum(kSummedStep);
  sum.Add(Own(0, own));
  sum.Add(Received(1, {{10, 20}, 2}));

  const std::shared_ptr<JointPush> push = sum.Reduce(Reduction::kMean, *buffers_);

  ASSERT_NE(push, nullptr);
  EXPECT_THAT(push->sum.floats(), ElementsAre(11, 22));
  EXPECT_THAT(own.values, ElementsAre(1, 2));
}

TEST_F(JointSumTest, AWorkersLaterContributionReplacesItsEarlier) {
  JointSum sum(kSummedStep);
  sum.Add(Received(0, {{1}, 1}));
  sum.Add(Received(1, {{100}, 9}));
  JointPart again = Received(1, {{5}, 1});
  again.who.incarnation = kLaterProcess;

  sum.Add(std::move(again));
  const std::shared_ptr<JointPush> push = sum.Reduce(Reduction::kMean, *buffers_);

  ASSERT_NE(push, nullptr);
  EXPECT_THAT(push->sum.floats(), ElementsAre(6));
  EXPECT_THAT(ContributorsOf(*push), ElementsAre(WorkerId{0}, WorkerId{1}));
  EXPECT_EQ(push->contributors[1].incarnation, kLaterProcess);
  EXPECT_EQ(push->contributors[1].weight, 1);
}

TEST_F(JointSumTest, ASumThatOverflowsIsNotPushed) {
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum}) {
    EXPECT_EQ(SumOf({{{1, 3e38F}, 1}, {{1, 3e38F}, 1}}, reduction), nullptr);
    EXPECT_NE(SumOf({{{1, 3e38F}, 1}, {{1, -3e38F}, 1}}, reduction), nullptr);
  }
  // Its unit is the first weight.
  EXPECT_EQ(SumOf({{{1}, 1e-300}, {{1}, 1}}, Reduction::kMean), nullptr);
}

TEST_F(JointSumTest, AMeanOfNoSamplesIsNotPushed) {
  const std::vector<WeightedValues> gradients = {{{1, 2}, 0}, {{3, 4}, 0}};
  JointSum with_own(kSummedStep);
  with_own.Add(Own(0, gradients[0]));
  with_own.Add(Received(1, gradients[1]));

  EXPECT_EQ(SumOf(gradients, Reduction::kMean), nullptr);
  EXPECT_EQ(with_own.Reduce(Reduction::kMean, *buffers_), nullptr);
  EXPECT_NE(SumOf(gradients, Reduction::kSum), nullptr);
}

TEST_F(JointSumTest, ItIsOfExactlyTheProcessesThatContributed) {
  JointSum sum(kSummedStep);
  sum.Add(Received(4, {{1}}));
  sum.Add(Received(2, {{1}}));
  const GroupMember two{
      .worker = WorkerId{2}, .incarnation = kEarlierProcess, .from_step = {}, .address = ""};
  GroupMember three = two;
  three.worker = WorkerId{3};
  GroupMember four = two;
  four.worker = WorkerId{4};
  GroupMember four_again = four;
  four_again.incarnation = kLaterProcess;
  const auto is_of = [&](std::vector<const GroupMember*> members) { return sum.IsOf(members); };

  EXPECT_TRUE(is_of({&two, &four}));
  EXPECT_FALSE(is_of({&two, &four_again}));
  EXPECT_FALSE(is_of({&two}));
  EXPECT_FALSE(is_of({&two, &three}));
  EXPECT_FALSE(is_of({&two, &three, &four}));
}

TEST_F(JointSumTest, TheMemoryOfAStepServesTheNext) {
  const std::byte* first = nullptr;
  {
    const HostBuffer buffer = *buffers_->Take(8);
    first = buffer.bytes().data();
  }
  const std::shared_ptr<JointPush> push = SumOf({{{1, 2}}, {{3, 4}}}, Reduction::kMean);
  ASSERT_NE(push, nullptr);
  HostBuffer while_in_use = *buffers_->Take(8);
  HostBuffer of_another_size = *buffers_->Take(12);
  EXPECT_EQ(push->sum.bytes().data(), first);
  EXPECT_NE(while_in_use.bytes().data(), first);
  EXPECT_EQ(of_another_size.num_bytes(), 12);

  push->sum = {};

  const HostBuffer next = *buffers_->Take(8);
  EXPECT_EQ(next.bytes().data(), first);
}

TEST_F(JointSumTest, ABufferOutlivesTheOwnerOfItsMemory) {
  auto buffers = std::make_shared<GroupBuffers>();
  HostBuffer buffer = *buffers->Take(8);

  buffers = nullptr;
  std::ranges::fill(buffer.floats(), 3.0F);

  EXPECT_THAT(buffer.floats(), ElementsAre(3, 3));
}

TEST_F(JointSumTest, AWorkerWithoutAGradientAddsOnlyItsSamples) {
  JointSum sum(kSummedStep);
  sum.Add({.who = Who(0, 6)});
  sum.Add(Received(1, {.values = {4, 8}, .weight = 2}));

  const std::shared_ptr<JointPush> push = sum.Reduce(Reduction::kMean, *buffers_);

  ASSERT_NE(push, nullptr);
  EXPECT_TRUE(push->has_gradient);
  EXPECT_EQ(push->unit, 2);
  EXPECT_THAT(push->sum.floats(), ElementsAre(4, 8));
  EXPECT_THAT(ContributorsOf(*push), ElementsAre(WorkerId{0}, WorkerId{1}));
  EXPECT_EQ(push->learning_rate, 0.5);
}

TEST_F(JointSumTest, NobodysGradientIsAPushWithoutOne) {
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum}) {
    JointSum sum(kSummedStep);
    sum.Add({.who = Who(0, 0)});
    sum.Add({.who = Who(1, 3)});

    const std::shared_ptr<JointPush> push = sum.Reduce(reduction, *buffers_);

    ASSERT_NE(push, nullptr);
    EXPECT_FALSE(push->has_gradient);
    EXPECT_EQ(push->unit, 3);
    EXPECT_EQ(push->sum.num_bytes(), 0U);
  }
}

}  // namespace
}  // namespace pushpull
