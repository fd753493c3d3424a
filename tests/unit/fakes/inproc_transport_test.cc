// SPDX-License-Identifier: Apache-2.0
//
// What only the inproc transport has: a bad network, on a clock that the test moves.
#include "tests/fakes/inproc/inproc_transport.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/frame_recorder.h"
#include "tests/fakes/sim_executor.h"
#include "tests/unit/runtime/transport/channel_rig.h"

namespace pushpull {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A client and a server over one network; everything happens in RunFor and RunUntilIdle.
class SimPair {
 public:
  explicit SimPair(uint64_t seed, const InprocOptions& options = {})
      : network(seed, options),
        client_transport(network, {&client_executor}, "client"),
        server_transport(network, {&server_executor}, "server"),
        acceptor(server_transport),
        listener(*server_transport.Listen("server:0", acceptor)) {}

  void Connect(Duration timeout = seconds(1)) {
    client.executor = &client_executor;
    client.recorder = std::make_unique<FrameRecorder>();
    client_transport.Connect({.address = listener->address(),
                              .peer_name = "server-3",
                              .hello = {.job = "job", .worker = WorkerId{7}},
                              .deadline = Deadline(scheduler.Now() + timeout)},
                             [this](absl::StatusOr<std::unique_ptr<Channel>> channel) {
                               connected = channel.status();
                               if (!channel.ok()) return;
                               client.channel = *std::move(channel);
                               client.channel->Start(*client.recorder);
                             });
    scheduler.RunUntilIdle();
    if (auto accepted = acceptor.TakeChannel()) server = accepted;
  }

  std::vector<uint64_t> Received() const {
    std::vector<uint64_t> chunks;
    for (const RecordedFrame& frame : server->recorder->frames())
      chunks.push_back(frame.header.chunk.value());
    return chunks;
  }

  SimScheduler scheduler;
  SimExecutor client_executor{scheduler};
  SimExecutor server_executor{scheduler};
  InprocNetwork network;
  InprocTransport client_transport;
  InprocTransport server_transport;
  RecordingAcceptor acceptor;
  std::unique_ptr<Listener> listener;
  RecordedChannel client;
  std::shared_ptr<RecordedChannel> server;
  std::optional<absl::Status> connected;
};

// The chunks in the order in which a thousand frames arrive over a bad network.
std::vector<uint64_t> ArrivalsOver(uint64_t seed, const InprocFaults& faults) {
  SimPair pair(seed, {.faults = faults});
  pair.Connect();
  for (uint64_t i = 0; i < 1000; ++i) {
    pair.client.channel->Send(PushFrame(i, {}));
    pair.scheduler.RunFor(milliseconds(1));
  }
  pair.scheduler.RunFor(seconds(1));
  return pair.Received();
}

TEST(InprocFaultTest, ASeedReproducesItsArrivals) {
  const InprocFaults faults{
      .delay_max = milliseconds(3), .loss = 0.1, .duplication = 0.1, .reordering = 0.1};

  const std::vector<uint64_t> arrivals = ArrivalsOver(1, faults);

  EXPECT_EQ(arrivals, ArrivalsOver(1, faults));
  EXPECT_NE(arrivals, ArrivalsOver(2, faults));
}

TEST(InprocFaultTest, LossLeavesGapsAndKeepsTheOrder) {
  const std::vector<uint64_t> arrivals = ArrivalsOver(1, {.loss = 0.1});

  EXPECT_TRUE(std::is_sorted(arrivals.begin(), arrivals.end()));
  EXPECT_NEAR(static_cast<double>(arrivals.size()), 900, 50);
}

TEST(InprocFaultTest, DuplicationRepeatsFrames) {
  std::vector<uint64_t> arrivals = ArrivalsOver(1, {.duplication = 0.1});

  EXPECT_NEAR(static_cast<double>(arrivals.size()), 1100, 50);
  arrivals.erase(std::unique(arrivals.begin(), arrivals.end()), arrivals.end());
  EXPECT_EQ(arrivals.size(), 1000U);
}

TEST(InprocFaultTest, ReorderingLosesNothing) {
  std::vector<uint64_t> arrivals = ArrivalsOver(1, {.reordering = 0.1});

  EXPECT_FALSE(std::is_sorted(arrivals.begin(), arrivals.end()));
  std::sort(arrivals.begin(), arrivals.end());
  arrivals.erase(std::unique(arrivals.begin(), arrivals.end()), arrivals.end());
  EXPECT_EQ(arrivals.size(), 1000U);
}

TEST(InprocFaultTest, DelayAloneKeepsTheOrder) {
  const std::vector<uint64_t> arrivals = ArrivalsOver(1, {.delay_max = milliseconds(10)});

  EXPECT_TRUE(std::is_sorted(arrivals.begin(), arrivals.end()));
  EXPECT_EQ(arrivals.size(), 1000U);
}

TEST(InprocFaultTest, AFrameTakesItsDelay) {
  SimPair pair(1, {.faults = {.delay_min = milliseconds(5), .delay_max = milliseconds(5)}});
  pair.Connect();
  pair.client.channel->Send(PushFrame(1, {}));

  pair.scheduler.RunFor(milliseconds(5) - Duration(1));
  EXPECT_THAT(pair.Received(), IsEmpty());
  pair.scheduler.RunFor(Duration(1));

  EXPECT_THAT(pair.Received(), ElementsAre(1));
}

TEST(InprocFaultTest, LaterChangesOfThePayloadAreNotReceived) {
  SimPair pair(
      1,
      {.faults = {.delay_min = milliseconds(5), .delay_max = milliseconds(5), .duplication = 1}});
  pair.Connect();
  std::vector<std::byte> payload = Pattern(1000);
  pair.client.channel->Send(PushFrame(1, payload));
  pair.scheduler.RunFor(milliseconds(1));

  std::fill(payload.begin(), payload.end(), std::byte{0});
  pair.scheduler.RunFor(milliseconds(10));

  const std::vector<RecordedFrame> frames = pair.server->recorder->frames();
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_TRUE(frames[0].payload == Pattern(1000));
  EXPECT_TRUE(frames[1].payload == Pattern(1000));
}

TEST(InprocFaultTest, FaultsMayChangeWhileChannelsAreOpen) {
  SimPair pair(1);
  pair.Connect();
  EXPECT_TRUE(pair.client.channel->is_reliable());

  pair.network.SetOptions({.faults = {.loss = 1}});
  pair.client.channel->Send(PushFrame(1, {}));
  pair.scheduler.RunFor(seconds(1));
  EXPECT_FALSE(pair.client.channel->is_reliable());
  pair.network.SetOptions({});
  pair.client.channel->Send(PushFrame(2, {}));
  pair.scheduler.RunFor(seconds(1));

  EXPECT_THAT(pair.Received(), ElementsAre(2));
}

TEST(InprocCutTest, BothEndsTimeOutAndNothingArrives) {
  SimPair pair(1, {.cut_timeout = seconds(20)});
  pair.Connect();

  pair.network.Cut("client", "server");
  pair.client.channel->Send(PushFrame(1, {}));
  pair.scheduler.RunFor(seconds(19));
  EXPECT_THAT(pair.client.recorder->events(), IsEmpty());
  EXPECT_THAT(pair.server->recorder->events(), IsEmpty());
  pair.scheduler.RunFor(seconds(2));

  EXPECT_THAT(pair.client.recorder->events(), ElementsAre("closed"));
  EXPECT_THAT(pair.server->recorder->events(), ElementsAre("closed"));
  EXPECT_EQ(pair.client.recorder->closed()->code(), absl::StatusCode::kUnavailable);
}

TEST(InprocCutTest, ACloseIsNotSeenThroughTheCut) {
  SimPair pair(1, {.cut_timeout = seconds(20)});
  pair.Connect();
  pair.network.Cut("server", "client");

  pair.client.channel->Close();
  pair.scheduler.RunFor(seconds(19));
  EXPECT_THAT(pair.server->recorder->events(), IsEmpty());
  pair.scheduler.RunFor(seconds(2));

  EXPECT_THAT(pair.server->recorder->events(), ElementsAre("closed"));
}

TEST(InprocCutTest, ConnectingFailsUntilTheCutIsHealed) {
  SimPair pair(1);
  pair.network.Cut("client", "server");

  pair.Connect(seconds(3));
  pair.scheduler.RunFor(seconds(2));
  EXPECT_FALSE(pair.connected.has_value());
  pair.scheduler.RunFor(seconds(2));
  ASSERT_TRUE(pair.connected.has_value());
  EXPECT_EQ(pair.connected->code(), absl::StatusCode::kDeadlineExceeded);
  pair.network.Heal("server", "client");
  pair.Connect();

  EXPECT_TRUE(pair.connected->ok()) << *pair.connected;
}

TEST(InprocCutTest, OthersAreNotCut) {
  SimPair pair(1);
  pair.Connect();

  pair.network.Cut("client", "somebody else");
  pair.client.channel->Send(PushFrame(1, {}));
  pair.scheduler.RunUntilIdle();

  EXPECT_THAT(pair.Received(), ElementsAre(1));
}

TEST(InprocBreakTest, BothEndsAreNotifiedAndMayReconnect) {
  SimPair pair(1);
  pair.Connect();

  pair.network.Break("client", "server");
  pair.scheduler.RunUntilIdle();

  EXPECT_THAT(pair.client.recorder->events(), ElementsAre("closed"));
  EXPECT_THAT(pair.server->recorder->events(), ElementsAre("closed"));
  EXPECT_THAT(std::string(pair.client.recorder->closed()->message()),
              HasSubstr("server-3 at server:"));
  pair.Connect();
  EXPECT_TRUE(pair.connected->ok());
}

TEST(InprocBreakTest, APayloadInFlightIsLost) {
  SimPair pair(1);
  pair.Connect();
  std::vector<std::byte> place(1000);
  pair.server->recorder->place = [&](Channel&, const FrameHeader&) {
    pair.network.Break("client", "server");
    return std::span(place);
  };
  const std::vector<std::byte> payload = Pattern(1000);

  pair.client.channel->Send(PushFrame(1, payload));
  pair.scheduler.RunUntilIdle();

  EXPECT_THAT(pair.server->recorder->events(), ElementsAre("lost", "closed"));
}

TEST(InprocTransportTest, OtherTasksRunBetweenHeaderAndPayload) {
  SimPair pair(1);
  pair.Connect();
  std::vector<std::string> order;
  std::vector<std::byte> place(10);
  pair.server->recorder->place = [&](Channel&, const FrameHeader&) {
    order.emplace_back("header");
    pair.server_executor.Post([&] { order.emplace_back("other"); });
    return std::span(place);
  };
  pair.server->recorder->on_frame = [&](Channel&, const ReceivedFrame&) {
    order.emplace_back("frame");
  };
  const std::vector<std::byte> payload = Pattern(10);

  pair.client.channel->Send(PushFrame(1, payload));
  pair.scheduler.RunUntilIdle();

  EXPECT_THAT(order, ElementsAre("header", "other", "frame"));
}

TEST(InprocTransportTest, ASenderWaitsWhenItsWindowIsFull) {
  SimPair pair(
      1, {.faults = {.delay_min = seconds(1), .delay_max = seconds(1)}, .window_bytes = 10'000});
  pair.Connect();
  const std::vector<std::byte> payload = Pattern(6000);
  for (uint64_t i = 0; i < 4; ++i) pair.client.channel->Send(PushFrame(i, payload));

  pair.scheduler.RunFor(milliseconds(1500));
  EXPECT_THAT(pair.Received(), ElementsAre(0, 1));
  pair.scheduler.RunFor(milliseconds(1000));

  EXPECT_THAT(pair.Received(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(pair.client.channel->queued_bytes(), 0U);
}

TEST(InprocTransportTest, ADestroyedTransportIsUnreachable) {
  SimScheduler scheduler;
  InprocNetwork network(1);
  SimExecutor client_executor(scheduler);
  InprocTransport client(network, {&client_executor});
  FrameRecorder recorder;
  std::unique_ptr<Channel> channel;
  {
    SimExecutor server_executor(scheduler);
    InprocTransport server(network, {&server_executor});
    RecordingAcceptor acceptor(server);
    const std::unique_ptr<Listener> listener = *server.Listen("server:0", acceptor);
    client.Connect({.address = listener->address(),
                    .peer_name = "server-3",
                    .hello = {},
                    .deadline = Deadline(scheduler.Now() + seconds(1))},
                   [&](absl::StatusOr<std::unique_ptr<Channel>> connected) {
                     ASSERT_TRUE(connected.ok()) << connected.status();
                     channel = *std::move(connected);
                     channel->Start(recorder);
                   });
    scheduler.RunUntilIdle();
  }

  ASSERT_NE(channel, nullptr);
  channel->Send(PushFrame(1, {}));
  scheduler.RunFor(seconds(30));

  EXPECT_THAT(recorder.events(), ElementsAre("closed"));
}

}  // namespace
}  // namespace pushpull
