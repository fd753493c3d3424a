// SPDX-License-Identifier: Apache-2.0
//
// How many bytes an urgent frame waits for over real sockets when more is queued than the link
// takes. Counted by the receiver, so that all buffers between the two programs are included.
//
// The receiver stops reading inside a frame's callback while hundreds of megabytes wait, and the
// sender writes until the kernel takes no more. Only then the urgent frame is queued. What arrives
// before it is the rest of the frame that was started, and what the kernel holds: in the sender's
// socket at most SO_SNDBUF, of which TCP_NOTSENT_LOWAT for the link; in the receiver's at most
// SO_RCVBUF.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/mutex.h"
#include "tests/unit/runtime/transport/channel_rig.h"

namespace pushpull {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;
constexpr size_t kQueuedBytes = 528 * 1000 * 1000;
constexpr uint64_t kUrgent = 1'000'000;
constexpr uint8_t kLastLayer = 200;
constexpr uint8_t kFirstLayer = 0;

// Blocks a thread until it is released.
class Gate {
 public:
  void Pass() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    is_reached_ = true;
    changed_.NotifyAll();
    while (!is_open_) {
      if (!changed_.WaitUntil(mu_, deadline_)) return;
    }
  }
  bool WaitForSomebody() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    while (!is_reached_) {
      if (!changed_.WaitUntil(mu_, deadline_)) return is_reached_;
    }
    return true;
  }
  void Open() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    is_open_ = true;
    changed_.NotifyAll();
  }

 private:
  const Deadline deadline_ = Deadline::After(std::chrono::seconds(30));
  Mutex mu_;
  CondVar changed_;
  bool is_reached_ ABSL_GUARDED_BY(mu_) = false;
  bool is_open_ ABSL_GUARDED_BY(mu_) = false;
};

enum class Direction { kPush, kPull };

struct OrderCase {
  const char* name;
  std::unique_ptr<Rig> (*make)(const RigOptions& options);
  Direction direction;
};

class TcpOrderTest : public ::testing::TestWithParam<OrderCase> {
 protected:
  TcpOrderTest() : pair_(GetParam().make({})) {}

  RecordedChannel& sender() {
    return GetParam().direction == Direction::kPush ? pair_.client() : pair_.server();
  }
  RecordedChannel& receiver() {
    return GetParam().direction == Direction::kPush ? pair_.server() : pair_.client();
  }

  void Connect() {
    pair_.Listen();
    const auto prepare = [](FrameRecorder& recorder) { recorder.keeps_payloads = false; };
    pair_.acceptor().prepare = prepare;
    pair_.ConnectBoth(0, prepare);
  }

  // Queues `num_bytes` in frames of `payload_bytes`, then an urgent one once the receiver has had
  // `before` of them, reads no more, and the kernel is full. Frames that came in between.
  size_t FramesAheadOfUrgent(size_t payload_bytes, size_t num_bytes, size_t before) {
    payload_ = Pattern(payload_bytes);
    Gate gate;
    size_t num_received = 0;
    size_t urgent_at = 0;
    RunOn(*receiver().executor, [&] {
      receiver().recorder->on_frame = [&](Channel&, const ReceivedFrame& frame) {
        ++num_received;
        if (num_received == before) gate.Pass();
        if (frame.header.chunk == ChunkId{kUrgent}) urgent_at = num_received;
      };
    });
    const size_t num_frames = num_bytes / payload_bytes;
    std::vector<OutgoingFrame> frames;
    for (uint64_t i = 0; i < num_frames; ++i) frames.push_back(PushFrame(i, payload_, kLastLayer));
    SendAll(sender(), std::move(frames));
    EXPECT_TRUE(gate.WaitForSomebody());

    FillKernel();
    SendOne(sender(), PushFrame(kUrgent, payload_, kFirstLayer));
    RunOn(*sender().executor, [] {});
    gate.Open();

    EXPECT_TRUE(receiver().recorder->WaitForFrames(num_frames + 1));
    RunOn(*receiver().executor, [&] { receiver().recorder->on_frame = nullptr; });
    EXPECT_GT(urgent_at, before);
    return urgent_at - before - 1;
  }

  // Until the sender has nothing to do for some turns of its loop: its socket takes no more.
  void FillKernel() {
    constexpr int kTurns = 64;
    size_t left = 0;
    for (int idle = 0; idle < kTurns; ++idle) {
      size_t queued = 0;
      ASSERT_TRUE(RunOn(*sender().executor, [&] { queued = sender().channel->queued_bytes(); }));
      if (std::exchange(left, queued) != queued) idle = 0;
    }
    EXPECT_GT(left, 0U);
  }

  std::vector<std::byte> payload_;  // outlives the threads that send it
  ChannelPair pair_;
};

TEST_P(TcpOrderTest, AFirstLayersChunkWaitsForOneOf528MegabytesOfChunks) {
  Connect();

  const size_t ahead = FramesAheadOfUrgent(kMebibyte, kQueuedBytes, 16);

  EXPECT_LE(ahead, 1U);
}

TEST_P(TcpOrderTest, WhatSmallTensorsWaitForIsAsManyBytes) {
  Connect();
  constexpr size_t kTensorBytes = 16 * 1024;

  const size_t ahead = FramesAheadOfUrgent(kTensorBytes, kQueuedBytes / 4, 1024);

  EXPECT_LE(ahead * kTensorBytes, kMebibyte);
}

INSTANTIATE_TEST_SUITE_P(,
                         TcpOrderTest,
                         ::testing::Values(OrderCase{"Push", MakeTcpRig, Direction::kPush},
                                           OrderCase{"Pull", MakeTcpRig, Direction::kPull},
                                           OrderCase{"PushTls", MakeTlsRig, Direction::kPush},
                                           OrderCase{"PullTls", MakeTlsRig, Direction::kPull}),
                         [](const auto& order) { return std::string(order.param.name); });

}  // namespace
}  // namespace pushpull
