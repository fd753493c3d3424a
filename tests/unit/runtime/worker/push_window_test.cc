// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/push_window.h"

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/sim_executor.h"

namespace pushpull {
namespace {

class PushWindowTest : public testing::Test {
 protected:
  SimScheduler scheduler_;
  SimExecutor executor_{scheduler_};
  int rooms_ = 0;
  std::optional<PushWindow> window_{std::in_place, executor_, [this] { ++rooms_; }};
};

TEST_F(PushWindowTest, LendsUntilItsLimitIsReached) {
  window_->SetLimit(10);
  for (uint64_t i = 0; i < 3; ++i) window_->Add(0, ChunkId{i});

  EXPECT_EQ(window_->Next(), ChunkId{0});
  auto first = window_->Lend(6, nullptr);
  EXPECT_EQ(window_->Next(), ChunkId{1});
  auto second = window_->Lend(6, nullptr);
  EXPECT_EQ(window_->Next(), std::nullopt);

  first.reset();
  scheduler_.RunUntilIdle();
  EXPECT_EQ(rooms_, 1);
  EXPECT_EQ(window_->Next(), ChunkId{2});
  EXPECT_EQ(window_->Next(), std::nullopt);
}

TEST_F(PushWindowTest, LendsForAPayloadAboveTheLimit) {
  window_->SetLimit(1);
  window_->Add(0, ChunkId{7});
  EXPECT_EQ(window_->Next(), ChunkId{7});
  const auto lent = window_->Lend(1000, nullptr);
  window_->Add(0, ChunkId{8});
  EXPECT_EQ(window_->Next(), std::nullopt);
}

TEST_F(PushWindowTest, OrdersByPriorityThenArrival) {
  window_->SetLimit(100);
  window_->Add(5, ChunkId{1});
  window_->Add(5, ChunkId{2});
  window_->Add(3, ChunkId{3});
  std::vector<uint64_t> order;
  while (const auto next = window_->Next()) order.push_back(next->value());
  EXPECT_EQ(order, (std::vector<uint64_t>{3, 1, 2}));
}

TEST_F(PushWindowTest, NotifiesOnceIfAPayloadWaits) {
  window_->SetLimit(2);
  auto first = window_->Lend(1, nullptr);
  auto second = window_->Lend(1, nullptr);
  auto third = window_->Lend(1, nullptr);
  first.reset();
  scheduler_.RunUntilIdle();
  EXPECT_EQ(rooms_, 0);

  window_->Add(0, ChunkId{1});
  EXPECT_EQ(window_->Next(), std::nullopt);
  second.reset();
  third.reset();
  scheduler_.RunUntilIdle();
  EXPECT_EQ(rooms_, 1);
}

// A channel may end on its server's thread, after the worker has gone.
TEST_F(PushWindowTest, LoanMayEndLaterOnAnotherThread) {
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> owned = owner;
  window_->SetLimit(1);
  auto lent = window_->Lend(1, std::move(owner));
  window_->Add(0, ChunkId{1});
  EXPECT_EQ(window_->Next(), std::nullopt);
  EXPECT_FALSE(owned.expired());

  window_.reset();
  std::thread([&] { lent.reset(); }).join();
  scheduler_.RunUntilIdle();
  EXPECT_TRUE(owned.expired());
  EXPECT_EQ(rooms_, 0);
}

}  // namespace
}  // namespace pushpull
