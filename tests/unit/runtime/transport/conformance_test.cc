// SPDX-License-Identifier: Apache-2.0
//
// What every transport must do; each test runs for all of them.
#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/mutex.h"
#include "runtime/transport/shm/shared_memory.h"
#include "tests/unit/runtime/transport/channel_rig.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kMebibyte = size_t{1} << 20;

// An event that one thread signals once and another waits for.
class Signal {
 public:
  void Give() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    is_given_ = true;
    changed_.NotifyAll();
  }
  bool Wait() ABSL_LOCKS_EXCLUDED(mu_) {
    const Deadline deadline = Deadline::After(std::chrono::seconds(10));
    MutexLock lock(mu_);
    while (!is_given_) {
      if (!changed_.WaitUntil(mu_, deadline)) return is_given_;
    }
    return true;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool is_given_ ABSL_GUARDED_BY(mu_) = false;
};

class TransportConformanceTest : public ::testing::TestWithParam<RigKind> {
 protected:
  void Open(const RigOptions& options = {}) {
    pair_ = std::make_unique<ChannelPair>(GetParam().make(options));
  }
  void OpenAndListen(const RigOptions& options = {}) {
    Open(options);
    pair_->Listen();
  }
  // Both ends, connected.
  void OpenBoth(const RigOptions& options = {}) {
    OpenAndListen(options);
    pair_->ConnectBoth();
  }
  // For tests whose callbacks refer to locals: no callback runs afterwards.
  void End() { pair_.reset(); }

  // Bytes that frames do not own live longer than the threads that send them: that a peer has them
  // does not order the sender's read before a test's end.
  const std::vector<std::byte>& Keep(std::vector<std::byte> bytes) {
    return kept_.emplace_back(std::move(bytes));
  }

  RecordedChannel& client() { return pair_->client(); }
  RecordedChannel& server() { return pair_->server(); }

  std::deque<std::vector<std::byte>> kept_;
  std::unique_ptr<ChannelPair> pair_;
};

std::vector<uint64_t> Chunks(const std::vector<RecordedFrame>& frames) {
  std::vector<uint64_t> chunks;
  chunks.reserve(frames.size());
  for (const RecordedFrame& frame : frames) chunks.push_back(frame.header.chunk.value());
  return chunks;
}

// ---- frames ----

TEST_P(TransportConformanceTest, PayloadsOfAnySizeArriveIntactInBothDirections) {
  OpenBoth();
  const std::vector<size_t> sizes{0, 1, 4096, 65536 - kFrameHeaderBytes, kMebibyte};
  std::vector<const std::vector<std::byte>*> payloads;
  payloads.reserve(sizes.size());
  for (const size_t size : sizes) {
    payloads.push_back(&Keep(Pattern(size, static_cast<uint32_t>(size))));
  }

  for (RecordedChannel* from : {&client(), &server()}) {
    std::vector<OutgoingFrame> frames;
    for (size_t i = 0; i < sizes.size(); ++i) frames.push_back(PushFrame(i, *payloads[i]));
    SendAll(*from, std::move(frames));
  }

  for (const RecordedChannel* to : {&server(), &client()}) {
    ASSERT_TRUE(to->recorder->WaitForFrames(sizes.size()));
    const std::vector<RecordedFrame> received = to->recorder->frames();
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(received[i].header.payload_bytes, sizes[i]);
      EXPECT_TRUE(received[i].payload == *payloads[i]) << sizes[i];
    }
  }
}

// Frames of channels among themselves are the only ones that handlers do not see.
TEST_P(TransportConformanceTest, PayloadsOfCollectivesReachTheHandler) {
  OpenBoth();
  const std::vector<std::byte>& payload = Keep(Pattern(4096));

  for (const FrameType type : {FrameType::kExchange, FrameType::kExchanged}) {
    OutgoingFrame frame = PushFrame(0, payload);
    frame.header.type = type;
    SendOne(client(), std::move(frame));
  }

  ASSERT_TRUE(server().recorder->WaitForFrames(2));
  for (const RecordedFrame& received : server().recorder->frames())
    EXPECT_TRUE(received.payload == payload);
}

TEST_P(TransportConformanceTest, PayloadsInSharedMemoryArriveIntactInBothDirections) {
  OpenBoth();
  const auto memory = *SharedMemory::Create("pushpull-test", 4 * kMebibyte);
  const std::vector<std::byte> pattern = Pattern(memory->bytes().size());
  std::ranges::copy(pattern, memory->bytes().begin());
  constexpr size_t kFrames = 16;

  for (RecordedChannel* from : {&client(), &server()}) {
    ASSERT_TRUE(RunOn(*from->executor, [&] { from->channel->Share(memory, nullptr); }));
    // Some are in flight before the peer has mapped the memory.
    for (size_t i = 0; i < kFrames; ++i) {
      OutgoingFrame frame = PushFrame(i, memory->bytes().subspan(i * 4096, kMebibyte - i * 4));
      frame.meta = Pattern(i);
      frame.payload.owner = memory;
      frame.payload.is_settled = true;
      SendOne(*from, std::move(frame));
    }
  }

  for (const RecordedChannel* to : {&server(), &client()}) {
    ASSERT_TRUE(to->recorder->WaitForFrames(kFrames));
    const std::vector<RecordedFrame> received = to->recorder->frames();
    for (size_t i = 0; i < kFrames; ++i) {
      EXPECT_EQ(received[i].header.flags & kFlagInRegion, 0);
      EXPECT_EQ(received[i].header.meta_bytes, i);
      EXPECT_EQ(received[i].meta, Pattern(i));
      EXPECT_TRUE(std::ranges::equal(received[i].payload,
                                     std::span(pattern).subspan(i * 4096, kMebibyte - i * 4)));
    }
  }
}

TEST_P(TransportConformanceTest, HeaderAndMetaArriveAsTheyWereSent) {
  OpenBoth();
  OutgoingFrame frame{.header = {.type = FrameType::kPublished,
                                 .reduction = Reduction::kSum,
                                 .priority = 3,
                                 .worker = WorkerId{4},
                                 .incarnation = Incarnation{5},
                                 .epoch = {Term{6}, 7},
                                 .chunk = ChunkId{8},
                                 .step = Step{9},
                                 .learning_rate = 0.5,
                                 .weight = 64,
                                 .trace_id = 10},
                      .meta = Pattern(kFrameMetaBytesMax),
                      .payload = {}};

  SendOne(client(), std::move(frame));

  ASSERT_TRUE(server().recorder->WaitForFrames(1));
  const RecordedFrame received = server().recorder->frames().front();
  EXPECT_EQ(received.header.type, FrameType::kPublished);
  EXPECT_EQ(received.header.reduction, Reduction::kSum);
  EXPECT_EQ(received.header.priority, 3);
  EXPECT_EQ(received.header.worker, WorkerId{4});
  EXPECT_EQ(received.header.incarnation, Incarnation{5});
  EXPECT_EQ(received.header.epoch, (Epoch{Term{6}, 7}));
  EXPECT_EQ(received.header.chunk, ChunkId{8});
  EXPECT_EQ(received.header.step, Step{9});
  EXPECT_EQ(received.header.learning_rate, 0.5);
  EXPECT_EQ(received.header.weight, 64);
  EXPECT_EQ(received.header.trace_id, 10U);
  EXPECT_EQ(received.meta, Pattern(kFrameMetaBytesMax));
}

TEST_P(TransportConformanceTest, AFrameHasTimesOfSendingAndReceipt) {
  OpenBoth();
  const auto ns = [](SteadyTime time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  };
  int64_t received_at = 0;
  ASSERT_TRUE(RunOn(*server().executor, [&] {
    server().recorder->on_frame = [&](Channel&, const ReceivedFrame& frame) {
      received_at = ns(frame.received_at);
    };
  }));
  const int64_t before = ns(std::chrono::steady_clock::now());

  SendOne(client(), PushFrame(0, {}));

  ASSERT_TRUE(server().recorder->WaitForFrames(1));
  ASSERT_TRUE(RunOn(*server().executor, [] {}));
  const int64_t sent_at = server().recorder->frames().front().header.sent_at;
  EXPECT_LE(before, sent_at);
  EXPECT_LE(sent_at, received_at);
  EXPECT_LE(received_at, ns(std::chrono::steady_clock::now()));
  End();
}

TEST_P(TransportConformanceTest, FramesOfOnePriorityArriveInOrder) {
  OpenBoth();
  const std::vector<std::byte>& payload = Keep(Pattern(5000));
  std::vector<OutgoingFrame> frames;
  for (uint64_t i = 0; i < 200; ++i) {
    frames.push_back(PushFrame(i, i % 3 == 0 ? std::span<const std::byte>() : payload));
  }

  SendAll(client(), std::move(frames));

  ASSERT_TRUE(server().recorder->WaitForFrames(200));
  std::vector<uint64_t> expected(200);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(Chunks(server().recorder->frames()), expected);
}

TEST_P(TransportConformanceTest, AnUrgentFrameOvertakesQueuedOnes) {
  OpenBoth();
  const std::vector<std::byte>& payload = Keep(Pattern(kMebibyte));
  std::vector<OutgoingFrame> frames;
  for (uint64_t i = 0; i < 32; ++i) frames.push_back(PushFrame(i, payload, 9));
  frames.push_back(PushFrame(100, payload, 1));

  SendAll(client(), std::move(frames));

  ASSERT_TRUE(server().recorder->WaitForFrames(33));
  const std::vector<uint64_t> chunks = Chunks(server().recorder->frames());
  // At most the one that was already started is ahead of it.
  EXPECT_LE(std::find(chunks.begin(), chunks.end(), 100) - chunks.begin(), 1);
}

TEST_P(TransportConformanceTest, APayloadIsReceivedWhereTheHandlerWantsIt) {
  OpenAndListen();
  std::vector<std::byte> place(kMebibyte);
  pair_->acceptor().prepare = [&](FrameRecorder& recorder) {
    recorder.place = [&](Channel&, const FrameHeader& header) {
      return std::span(place).first(header.payload_bytes);
    };
  };
  pair_->ConnectBoth();
  const std::vector<std::byte>& payload = Keep(Pattern(kMebibyte));

  SendOne(client(), PushFrame(0, payload));

  ASSERT_TRUE(server().recorder->WaitForFrames(1));
  EXPECT_EQ(server().recorder->frames().front().received_into, place.data());
  EXPECT_TRUE(place == payload);
  End();
}

TEST_P(TransportConformanceTest, ADiscardedPayloadDoesNotStopTheNextFrame) {
  OpenAndListen();
  pair_->acceptor().prepare = [](FrameRecorder& recorder) {
    recorder.place = [](Channel&, const FrameHeader&) { return std::span<std::byte>(); };
  };
  pair_->ConnectBoth();
  const std::vector<std::byte>& small = Keep(Pattern(100));
  const std::vector<std::byte>& large = Keep(Pattern(kMebibyte));
  std::vector<OutgoingFrame> frames;
  frames.push_back(PushFrame(1, large));
  frames.push_back(PushFrame(2, small));
  frames.push_back(PushFrame(3, {}));

  SendAll(client(), std::move(frames));

  ASSERT_TRUE(server().recorder->WaitForFrames(3));
  const std::vector<RecordedFrame> received = server().recorder->frames();
  EXPECT_THAT(Chunks(received), ElementsAre(1, 2, 3));
  EXPECT_EQ(received[0].header.payload_bytes, kMebibyte);
  EXPECT_EQ(received[0].received_into, nullptr);
  EXPECT_EQ(received[1].received_into, nullptr);
}

TEST_P(TransportConformanceTest, ABufferOfTheWrongLengthEndsTheChannel) {
  OpenAndListen();
  std::vector<std::byte> place(10);
  pair_->acceptor().prepare = [&](FrameRecorder& recorder) {
    recorder.place = [&](Channel&, const FrameHeader&) { return std::span(place); };
  };
  pair_->ConnectBoth();
  const std::vector<std::byte>& payload = Keep(Pattern(11));

  SendOne(client(), PushFrame(0, payload));

  ASSERT_TRUE(server().recorder->WaitForClosed());
  EXPECT_EQ(server().recorder->closed()->code(), absl::StatusCode::kInternal);
  End();
}

TEST_P(TransportConformanceTest, ManySmallFramesArrive) {
  OpenBoth();
  const std::vector<std::byte>& payload = Keep(Pattern(64));
  constexpr size_t kFrames = 20000;
  std::vector<OutgoingFrame> frames;
  for (uint64_t i = 0; i < kFrames; ++i) frames.push_back(PushFrame(i, payload));

  SendAll(client(), std::move(frames));

  ASSERT_TRUE(server().recorder->WaitForFrames(kFrames));
  EXPECT_EQ(server().recorder->num_payload_bytes(), kFrames * payload.size());
  EXPECT_EQ(server().recorder->frames().back().header.chunk, ChunkId{kFrames - 1});
}

TEST_P(TransportConformanceTest, AQuarterGibibyteStreamsInBothDirectionsAtOnce) {
  OpenAndListen();
  const auto prepare = [](FrameRecorder& recorder) { recorder.keeps_payloads = false; };
  pair_->acceptor().prepare = prepare;
  pair_->ConnectBoth(0, prepare);
  const std::vector<std::byte>& payload = Keep(Pattern(kMebibyte));

  for (RecordedChannel* from : {&client(), &server()}) {
    std::vector<OutgoingFrame> frames;
    for (uint64_t i = 0; i < 256; ++i) frames.push_back(PushFrame(i, payload));
    SendAll(*from, std::move(frames));
  }

  EXPECT_TRUE(server().recorder->WaitForFrames(256));
  EXPECT_TRUE(client().recorder->WaitForFrames(256));
}

TEST_P(TransportConformanceTest, ASentPayloadIsReleasedOnItsExecutor) {
  OpenBoth();
  Signal released;
  const EventLoop* releasing_loop = nullptr;
  auto* const loop = dynamic_cast<EventLoop*>(client().executor);
  const auto bytes = std::make_shared<std::vector<std::byte>>(Pattern(kMebibyte));
  std::shared_ptr<const void> owner(bytes.get(), [&, bytes](const void*) {
    releasing_loop = loop->is_loop_thread() ? loop : nullptr;
    released.Give();
  });
  OutgoingFrame frame = PushFrame(0, *bytes);
  frame.payload.owner = std::move(owner);

  SendOne(client(), std::move(frame));

  ASSERT_TRUE(released.Wait());
  EXPECT_EQ(releasing_loop, loop);
  End();
}

// ---- connecting ----

TEST_P(TransportConformanceTest, EachLaneHasItsOwnConnectionAndThread) {
  OpenAndListen();
  for (const uint32_t lane : {0U, 1U}) {
    pair_->ConnectBoth(lane);
    const auto* loop = dynamic_cast<EventLoop*>(&pair_->rig().server().lane(lane));
    Signal checked;
    bool is_on_lane = false;
    ASSERT_TRUE(RunOn(*server().executor, [&] {
      server().recorder->on_frame = [&](Channel&, const ReceivedFrame&) {
        is_on_lane = loop->is_loop_thread();
        checked.Give();
      };
    }));

    SendOne(client(), PushFrame(lane, {}));

    ASSERT_TRUE(checked.Wait());
    EXPECT_TRUE(is_on_lane) << lane;
    EXPECT_EQ(server().hello.lane, lane);
    ASSERT_TRUE(RunOn(*server().executor, [&] { server().recorder->on_frame = nullptr; }));
  }
}

TEST_P(TransportConformanceTest, TheAcceptorLearnsWhoConnects) {
  OpenAndListen();
  pair_->ConnectBoth();

  EXPECT_EQ(server().hello.job, "job");
  EXPECT_EQ(server().hello.worker, WorkerId{7});
  EXPECT_EQ(server().hello.incarnation, Incarnation{99});
  EXPECT_THAT(client().channel->peer(), AllOf(HasSubstr("server-3"), HasSubstr(pair_->address())));
  EXPECT_THAT(server().channel->peer(), HasSubstr("worker-7"));
}

TEST_P(TransportConformanceTest, BothEndsOfOneHostShareTheirClockAndAreReliable) {
  OpenBoth();

  for (const RecordedChannel* end : {&client(), &server()}) {
    EXPECT_EQ(end->channel->clock_offset(), Duration::zero());
    EXPECT_TRUE(end->channel->is_reliable());
  }
}

TEST_P(TransportConformanceTest, TheAcceptorsRejectionReachesTheOtherSide) {
  Open();
  pair_->acceptor().admit = [](const Hello& hello) {
    return absl::PermissionDeniedError("server-3 serves job \"other\", not \"" + hello.job + "\"");
  };
  pair_->Listen();

  const absl::Status status = pair_->Connect(pair_->Request()).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("server-3 at " + pair_->address()),
                    HasSubstr("serves job \"other\", not \"job\"")));
}

TEST_P(TransportConformanceTest, ALaneThatDoesNotExistIsRejected) {
  OpenAndListen();

  const absl::Status status = pair_->Connect(pair_->Request(2)).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("lane 2"));
}

TEST_P(TransportConformanceTest, ConnectingToADeadAddressNamesThePeer) {
  Open();
  ConnectRequest request = pair_->Request();
  request.address = pair_->rig().deserted_address();

  const absl::Status status = pair_->Connect(request).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("server-3 at " + request.address));
}

TEST_P(TransportConformanceTest, ConnectingAfterTheDeadlineReportsIt) {
  OpenAndListen();
  ConnectRequest request = pair_->Request();
  Signal is_held;
  Signal may_go_on;
  pair_->acceptor().admit = [&](const Hello&) {
    is_held.Give();
    EXPECT_TRUE(may_go_on.Wait());
    return absl::OkStatus();
  };
  request.deadline = Deadline::After(std::chrono::milliseconds(50));

  const absl::Status status = pair_->Connect(request).status();

  may_go_on.Give();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("server-3 at " + pair_->address()));
  End();
}

TEST_P(TransportConformanceTest, AnAddressInUseIsNamed) {
  OpenAndListen();
  RecordingAcceptor other(pair_->rig().server());

  const absl::Status status = pair_->rig().server().Listen(pair_->address(), other).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(pair_->address()));
}

TEST_P(TransportConformanceTest, AnInvalidAddressIsRejected) {
  Open();
  ConnectRequest request = pair_->Request();
  request.address = "no-port";

  EXPECT_FALSE(pair_->Connect(request).ok());
  EXPECT_EQ(pair_->rig().server().Listen("no-port", pair_->acceptor()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(TransportConformanceTest, AcceptedChannelsOutliveTheListener) {
  OpenBoth();
  pair_->StopListening();

  SendOne(client(), PushFrame(5, {}));

  EXPECT_TRUE(server().recorder->WaitForFrames(1));
  EXPECT_EQ(pair_->Connect(pair_->Request()).status().code(), absl::StatusCode::kUnavailable);
  RecordingAcceptor other(pair_->rig().server());
  EXPECT_TRUE(pair_->rig().server().Listen(pair_->address(), other).ok());
}

// ---- the end ----

TEST_P(TransportConformanceTest, OnlyTheOtherEndIsNotifiedOfAClose) {
  for (const bool closes_client : {true, false}) {
    OpenBoth();
    RecordedChannel& closing = closes_client ? client() : server();
    RecordedChannel& told = closes_client ? server() : client();

    ASSERT_TRUE(RunOn(*closing.executor, [&] { closing.channel->Close(); }));

    ASSERT_TRUE(told.recorder->WaitForClosed());
    EXPECT_EQ(told.recorder->closed()->code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(told.recorder->closed()->message()),
                HasSubstr(closes_client ? "worker-7" : "server-3"));
    ASSERT_TRUE(RunOn(*closing.executor, [] {}));
    EXPECT_THAT(closing.recorder->events(), ElementsAre());
  }
}

TEST_P(TransportConformanceTest, AChannelThatIsDestroyedCloses) {
  OpenBoth();

  ChannelPair::Drop(client());

  EXPECT_TRUE(server().recorder->WaitForClosed());
}

TEST_P(TransportConformanceTest, SendingAfterTheCloseDoesNothing) {
  OpenBoth();
  ASSERT_TRUE(RunOn(*client().executor, [&] { client().channel->Close(); }));
  ASSERT_TRUE(server().recorder->WaitForClosed());

  SendOne(client(), PushFrame(0, {}));
  SendOne(server(), PushFrame(0, {}));

  ASSERT_TRUE(RunOn(*server().executor, [] {}));
  for (RecordedChannel* side : {&client(), &server()}) {
    ASSERT_TRUE(RunOn(*side->executor, [&] { EXPECT_EQ(side->channel->queued_bytes(), 0U); }));
  }
  EXPECT_THAT(server().recorder->events(), ElementsAre("closed"));
}

TEST_P(TransportConformanceTest, APayloadIsLostWhenItsPeerDies) {
  OpenAndListen({.has_small_buffers = true});
  std::vector<std::byte> place(kMebibyte);
  Signal has_begun;
  Signal may_go_on;
  pair_->acceptor().prepare = [&](FrameRecorder& recorder) {
    recorder.place = [&](Channel&, const FrameHeader&) {
      has_begun.Give();
      EXPECT_TRUE(may_go_on.Wait());
      return std::span(place);
    };
  };
  pair_->ConnectBoth();
  const std::vector<std::byte>& payload = Keep(Pattern(kMebibyte));
  SendOne(client(), PushFrame(0, payload));
  ASSERT_TRUE(has_begun.Wait());

  ChannelPair::Drop(client());
  may_go_on.Give();

  ASSERT_TRUE(server().recorder->WaitForClosed());
  const std::string first = GetParam().has_whole_payloads ? "frame" : "lost";
  EXPECT_THAT(server().recorder->events(), ElementsAre(first, "closed"));
  End();
}

TEST_P(TransportConformanceTest, AHandlerMayDestroyItsChannelInEveryCallback) {
  const std::vector<std::byte>& payload = Keep(Pattern(1000));
  enum class Callback { kPayloadBuffer, kFrame, kFrameWithoutPayload, kPayloadLost, kClosed };
  for (const Callback callback : {Callback::kPayloadBuffer,
                                  Callback::kFrame,
                                  Callback::kFrameWithoutPayload,
                                  Callback::kPayloadLost,
                                  Callback::kClosed}) {
    OpenBoth();
    RecordedChannel& victim = server();
    Signal destroyed;
    const auto destroy = [&](Channel&) {
      victim.channel.reset();
      destroyed.Give();
    };
    std::vector<std::byte> place(payload.size());
    ASSERT_TRUE(RunOn(*victim.executor, [&] {
      if (callback == Callback::kPayloadBuffer) {
        victim.recorder->place = [&](Channel& channel, const FrameHeader&) {
          destroy(channel);
          return std::span(place);
        };
      } else if (callback == Callback::kPayloadLost) {
        victim.recorder->place = [&](Channel&, const FrameHeader&) {
          // A buffer of the wrong length: the payload is lost at once.
          return std::span(place).first(1);
        };
        victim.recorder->on_payload_lost = destroy;
      } else if (callback == Callback::kClosed) {
        victim.recorder->on_closed = destroy;
      } else {
        victim.recorder->on_frame = [&](Channel& channel, const ReceivedFrame&) {
          destroy(channel);
        };
      }
    }));

    std::vector<OutgoingFrame> frames;
    const bool has_payload = callback != Callback::kFrameWithoutPayload;
    for (uint64_t i = 0; i < 10; ++i) {
      frames.push_back(
          PushFrame(i, has_payload ? std::span(payload) : std::span(payload).first(0)));
    }
    SendAll(client(), std::move(frames));
    if (callback == Callback::kClosed) ChannelPair::Drop(client());

    ASSERT_TRUE(destroyed.Wait());
    ASSERT_TRUE(RunOn(*victim.executor, [] {}));
    const bool is_told = callback == Callback::kClosed;
    EXPECT_EQ(victim.recorder->closed().has_value(), is_told);
    if (!is_told) {
      EXPECT_TRUE(client().recorder->WaitForClosed());
    }
    End();
  }
}

TEST_P(TransportConformanceTest, AHandlerMayAnswerAndCloseInsideOnFrame) {
  OpenBoth();
  ASSERT_TRUE(RunOn(*server().executor, [&] {
    server().recorder->on_frame = [](Channel& channel, const ReceivedFrame& frame) {
      if (frame.header.chunk == ChunkId{1}) return channel.Close();
      channel.Send(PushFrame(42, {}));
    };
  }));

  SendOne(client(), PushFrame(0, {}));
  ASSERT_TRUE(client().recorder->WaitForFrames(1));
  SendOne(client(), PushFrame(1, {}));

  ASSERT_TRUE(client().recorder->WaitForClosed());
  EXPECT_THAT(Chunks(client().recorder->frames()), ElementsAre(42));
}

TEST_P(TransportConformanceTest, AFullQueueClosesTheChannelAndNamesThePeer) {
  OpenAndListen({.send_queue_frames_max = 100, .has_small_buffers = true});
  Signal may_go_on;
  Signal has_stopped_reading;
  pair_->acceptor().prepare = [&](FrameRecorder& recorder) {
    recorder.on_frame = [&](Channel&, const ReceivedFrame&) {
      has_stopped_reading.Give();
      EXPECT_TRUE(may_go_on.Wait());
    };
  };
  pair_->ConnectBoth();
  SendOne(client(), PushFrame(0, {}));
  ASSERT_TRUE(has_stopped_reading.Wait());
  const std::vector<std::byte>& payload = Keep(Pattern(kMebibyte));

  std::vector<OutgoingFrame> frames;
  for (uint64_t i = 0; i < 200; ++i) frames.push_back(PushFrame(i, payload));
  SendAll(client(), std::move(frames));

  EXPECT_TRUE(client().recorder->WaitForClosed());
  may_go_on.Give();
  EXPECT_EQ(client().recorder->closed()->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(client().recorder->closed()->message()), HasSubstr("server-3"));
  End();
}

TEST_P(TransportConformanceTest, AFrameThatIsTooLargeEndsTheChannel) {
  OpenBoth();
  const std::vector<std::byte> payload(kFramePayloadBytesMax + 1);

  SendOne(client(), PushFrame(0, payload));

  ASSERT_TRUE(client().recorder->WaitForClosed());
  EXPECT_EQ(client().recorder->closed()->code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(TransportConformanceTest, ClosingDropsTheQueueAndReleasesPayloads) {
  OpenBoth({.has_small_buffers = true});
  const auto bytes = std::make_shared<std::vector<std::byte>>(Pattern(kMebibyte));
  std::vector<OutgoingFrame> frames;
  for (uint64_t i = 0; i < 64; ++i) {
    frames.push_back(PushFrame(i, *bytes));
    frames.back().payload.owner = bytes;
  }
  SendAll(client(), std::move(frames));

  ASSERT_TRUE(RunOn(*client().executor, [&] {
    client().channel->Close();
    EXPECT_EQ(client().channel->queued_bytes(), 0U);
  }));

  EXPECT_EQ(bytes.use_count(), 1);
}

INSTANTIATE_TEST_SUITE_P(,
                         TransportConformanceTest,
                         ::testing::ValuesIn(AllRigKinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace pushpull
