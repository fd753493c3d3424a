// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/acceptor_gate.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/base/event_loop.h"

namespace pushpull {
namespace {

class CountingAcceptor final : public ChannelAcceptor {
 public:
  absl::Status Admit(const Hello&) override { return absl::OkStatus(); }
  void OnChannel(const Hello&, std::unique_ptr<Channel>) override {}
  void OnRejected(const absl::Status&) override { ++num_rejected; }

  std::atomic<int> num_rejected = 0;
};

TEST(AcceptorGateTest, AdmitsUntilItIsClosed) {
  CountingAcceptor acceptor;
  AcceptorGate gate(acceptor);
  const auto reject = [](ChannelAcceptor& inside) { inside.OnRejected(absl::OkStatus()); };

  EXPECT_TRUE(gate.Enter(reject));
  gate.Close();
  EXPECT_FALSE(gate.Enter(reject));

  EXPECT_EQ(acceptor.num_rejected, 1);
}

TEST(AcceptorGateTest, ClosingWaitsForCallersInside) {
  CountingAcceptor acceptor;
  AcceptorGate gate(acceptor);
  std::atomic<bool> is_inside = false;
  std::atomic<bool> is_through = false;
  EventLoop loop("inside");
  loop.Post([&] {
    gate.Enter([&](ChannelAcceptor&) {
      is_inside = true;
      is_inside.notify_all();
      // Long enough for Close to be waiting, on most runs; the outcome is the same on all.
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      is_through = true;
    });
  });
  is_inside.wait(false);

  gate.Close();

  EXPECT_TRUE(is_through);
}

}  // namespace
}  // namespace pushpull
