// SPDX-License-Identifier: Apache-2.0
//
// With a real disk and its thread.
#include "runtime/worker/ring_saver.h"

#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/event_loop.h"
#include "runtime/base/mutex.h"

namespace pushpull {
namespace {

constexpr Duration kPatience = std::chrono::seconds(30);

// A state of one tensor with one chunk.
RingState MakeState() {
  const TensorSpec spec{.name = "w", .dims = {3}};
  return *RingState::Make(std::vector<PlacedTensor>{
      {.id = TensorId{0}, .spec = spec, .first_chunk = ChunkId{0}, .shards = {}}});
}

class RingSaverTest : public testing::Test {
 public:
  ~RingSaverTest() override {
    OnLoop([&] { saver_.reset(); });
    std::filesystem::remove_all(dir_);
  }

 protected:
  RingSaverTest() : dir_(testing::TempDir() + "/ring_saver_test") {
    std::filesystem::remove_all(dir_);
    OnLoop([&] {
      saver_ = std::make_unique<RingSaver>(loop_, [this](Captured done) {
        MutexLock lock(mu_);
        reports_.push_back(std::move(done));
        changed_.NotifyAll();
      });
    });
  }

  void OnLoop(const std::function<void()>& body) {
    std::promise<void> done;
    loop_.Post([&] {
      body();
      done.set_value();
    });
    done.get_future().wait();
  }
  Capture Order(uint64_t attempt, uint64_t step) const {
    return {.attempt = attempt, .step = Step{step}, .folder = dir_, .part = 0, .parts = 1};
  }
  // The report with this number, counted from 1.
  Captured Report(size_t number) {
    MutexLock lock(mu_);
    const Deadline deadline = Deadline::After(kPatience);
    while (reports_.size() < number && !deadline.has_passed()) changed_.WaitUntil(mu_, deadline);
    EXPECT_GE(reports_.size(), number);
    return reports_.size() < number ? Captured{} : reports_[number - 1];
  }

  const std::string dir_;
  const RingState state_ = MakeState();
  EventLoop loop_{"test"};
  Mutex mu_;
  CondVar changed_;
  std::vector<Captured> reports_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<RingSaver> saver_;  // confined to loop_
};

TEST_F(RingSaverTest, PartIsWrittenAtTheStepOfTheOrder) {
  OnLoop([&] {
    saver_->Begin(Order(7, 5));
    EXPECT_FALSE(saver_->AdvanceTo(Step{4}));
    ASSERT_TRUE(saver_->AdvanceTo(Step{5}));
    saver_->Write(7, StatePart::Copy(state_, 0, 1));
    EXPECT_FALSE(saver_->AdvanceTo(Step{5}));
  });

  const Captured done = Report(1);

  EXPECT_TRUE(done.status.ok()) << done.status;
  EXPECT_EQ(done.attempt, 7U);
  ASSERT_EQ(done.files.size(), 1U);
  EXPECT_TRUE(std::filesystem::exists(StepFolder(dir_, Step{5}) + "/" + done.files.front().name));
}

TEST_F(RingSaverTest, OrderForAnEarlierStepIsAnsweredWithThisOne) {
  OnLoop([&] {
    saver_->Begin(Order(7, 5));
    EXPECT_FALSE(saver_->AdvanceTo(Step{9}));
  });

  const Captured late = Report(1);

  EXPECT_TRUE(absl::IsAborted(late.status)) << late.status;
  EXPECT_EQ(late.highest_version, Step{9});
}

TEST_F(RingSaverTest, FolderThatCannotBeWrittenIsReported) {
  std::filesystem::create_directories(dir_);
  Capture order = Order(7, 5);
  order.folder = "/proc/pushpull";
  OnLoop([&] {
    saver_->Begin(order);
    ASSERT_TRUE(saver_->AdvanceTo(Step{5}));
    saver_->Write(7, StatePart::Copy(state_, 0, 1));
  });

  const Captured failed = Report(1);

  EXPECT_FALSE(failed.status.ok());
  EXPECT_THAT(std::string(failed.status.message()), testing::HasSubstr("/proc/pushpull"));
}

TEST_F(RingSaverTest, EndedAttemptIsNotReported) {
  OnLoop([&] {
    saver_->Begin(Order(7, 5));
    ASSERT_TRUE(saver_->AdvanceTo(Step{5}));
    saver_->End(7);
    saver_->Begin(Order(8, 5));
    saver_->Write(7, StatePart::Copy(state_, 0, 1));  // it was being copied
    ASSERT_TRUE(saver_->AdvanceTo(Step{5}));
    saver_->Write(8, StatePart::Copy(state_, 0, 1));
    saver_->End(8);  // while it is written
    saver_->Begin(Order(9, 5));
    ASSERT_TRUE(saver_->AdvanceTo(Step{5}));
    saver_->Write(9, StatePart::Copy(state_, 0, 1));
  });

  EXPECT_EQ(Report(1).attempt, 9U);
}

}  // namespace
}  // namespace pushpull
