// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/disk_thread.h"

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/event_loop.h"

namespace pushpull {
namespace {

constexpr std::chrono::seconds kEnough{30};

// A task that says when it runs, hangs until it is released, and says when it is freed.
struct SlowTask {
  std::promise<void> begun;
  std::promise<void> released;
  std::promise<void> freed;

  DiskThread::Task Make(std::function<void()> result) {
    const std::shared_ptr<SlowTask> owned(this, [](SlowTask* task) { task->freed.set_value(); });
    return [owned, result = std::move(result)] {
      owned->begun.set_value();
      owned->released.get_future().wait();
      return result;
    };
  }
};

class DiskThreadTest : public testing::Test {
 protected:
  void OnLoop(const std::function<void()>& body) {
    std::promise<void> done;
    loop_->Post([&] {
      body();
      done.set_value();
    });
    done.get_future().wait();
  }
  // A task's result that is kept in results_.
  std::function<void()> Keep(int number) {
    return [this, number] { results_.push_back(number); };
  }

  std::vector<int> results_;            // confined to loop_
  std::unique_ptr<DiskThread> thread_;  // confined to loop_
  // Ends first: a result may have been posted to it after the last step of a test.
  std::optional<EventLoop> loop_{std::in_place, "test"};
};

TEST_F(DiskThreadTest, OwnerEndsWhileTheDiskHangs) {
  SlowTask hung;
  OnLoop([&] {
    thread_ = std::make_unique<DiskThread>(*loop_, Duration::zero());
    thread_->Start(hung.Make(Keep(1)));
  });
  hung.begun.get_future().wait();

  OnLoop([&] { thread_.reset(); });
  loop_.reset();
  hung.released.set_value();

  ASSERT_EQ(hung.freed.get_future().wait_for(kEnough), std::future_status::ready);
  EXPECT_THAT(results_, testing::IsEmpty());
}

TEST_F(DiskThreadTest, OwnerWaitsForTheTaskUnderWay) {
  SlowTask slow;
  OnLoop([&] {
    thread_ = std::make_unique<DiskThread>(*loop_, kEnough);
    thread_->Start(slow.Make(Keep(1)));
  });
  slow.begun.get_future().wait();

  slow.released.set_value();
  OnLoop([&] { thread_.reset(); });

  EXPECT_EQ(slow.freed.get_future().wait_for(Duration::zero()), std::future_status::ready);
}

TEST_F(DiskThreadTest, NewTaskReplacesOneThatWaits) {
  SlowTask slow;
  std::promise<void> last;
  OnLoop([&] {
    thread_ = std::make_unique<DiskThread>(*loop_);
    thread_->Start(slow.Make(Keep(1)));
  });
  slow.begun.get_future().wait();
  OnLoop([&] {
    thread_->Start([keep = Keep(2)] { return keep; });
    thread_->Start([&, keep = Keep(3)] {
      return [&, keep] {
        keep();
        last.set_value();
      };
    });
  });

  slow.released.set_value();
  ASSERT_EQ(last.get_future().wait_for(kEnough), std::future_status::ready);

  OnLoop([&] { thread_.reset(); });
  EXPECT_THAT(results_, testing::ElementsAre(1, 3));
}

}  // namespace
}  // namespace pushpull
