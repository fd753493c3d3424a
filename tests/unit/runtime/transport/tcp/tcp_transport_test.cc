// SPDX-License-Identifier: Apache-2.0
//
// The tcp transport: strangers, damage, silence, host names, other hosts.
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/wire_bytes.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/stream/transport_options.h"
#include "tests/unit/runtime/transport/channel_rig.h"
#include "tests/unit/runtime/transport/raw_peer.h"

namespace pushpull {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TcpTest : public ::testing::Test {
 protected:
  void Listen(const TransportOptions& server = {}, const TransportOptions& client = {}) {
    pair_ = std::make_unique<ChannelPair>(MakeTcpRig(client, server));
    pair_->Listen();
  }
  // A raw peer that is through its handshake, as the server's other end.
  RawPeer Shake(uint64_t host) {
    RawPeer peer = RawPeer::Connect(pair_->address());
    peer.SendHello(host);
    const absl::StatusOr<OutgoingFrame> ack = peer.ReceiveFrame();
    EXPECT_TRUE(ack.ok() && ack->header.type == FrameType::kHelloAck);
    server_ = pair_->acceptor().WaitForChannel();
    EXPECT_NE(server_, nullptr);
    return peer;
  }
  // The one connection that was rejected.
  absl::Status Rejection() {
    EXPECT_TRUE(pair_->acceptor().WaitForRejections(1));
    const std::vector<absl::Status> rejections = pair_->acceptor().rejections();
    EXPECT_EQ(rejections.size(), 1U);
    return rejections.empty() ? absl::OkStatus() : rejections.front();
  }
  // An honest client can still connect and send.
  void ExpectServes() {
    pair_->ConnectBoth();
    SendOne(pair_->client(), PushFrame(1, {}));
    EXPECT_TRUE(pair_->server().recorder->WaitForFrames(1));
  }
  void TearDown() override {
    if (server_ != nullptr) ChannelPair::Drop(*server_);
  }

  std::unique_ptr<ChannelPair> pair_;
  std::shared_ptr<RecordedChannel> server_;
};

// ---- strangers before the handshake ----

TEST_F(TcpTest, RandomBytesAreRejectedAndCounted) {
  Listen();
  RawPeer stranger = RawPeer::Connect(pair_->address());

  stranger.Send(Pattern(10'000));

  EXPECT_TRUE(stranger.WaitForEnd());
  const absl::Status why = Rejection();
  EXPECT_EQ(why.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(why.message()), HasSubstr("127.0.0.1:"));
  ExpectServes();
}

TEST_F(TcpTest, ATruncatedHelloIsRejected) {
  Listen();
  RawPeer stranger = RawPeer::Connect(pair_->address());
  const std::vector<std::byte> hello =
      EncodeFrame({.type = FrameType::kHello}, EncodeHello({}), {});

  stranger.Send(std::span(hello).first(hello.size() - 1));
  stranger.Close();

  EXPECT_EQ(Rejection().code(), absl::StatusCode::kUnavailable);
  ExpectServes();
}

TEST_F(TcpTest, AFirstFrameThatIsNotAHelloIsRejected) {
  Listen();
  RawPeer stranger = RawPeer::Connect(pair_->address());

  stranger.SendFrame({.type = FrameType::kPush}, {}, Pattern(100));

  EXPECT_TRUE(stranger.WaitForEnd());
  EXPECT_EQ(Rejection().code(), absl::StatusCode::kDataLoss);
  ExpectServes();
}

TEST_F(TcpTest, AHelloWithAMalformedMetaIsRejected) {
  Listen();
  RawPeer stranger = RawPeer::Connect(pair_->address());

  stranger.SendFrame({.type = FrameType::kHello}, Pattern(3));

  EXPECT_TRUE(stranger.WaitForEnd());
  EXPECT_EQ(Rejection().code(), absl::StatusCode::kDataLoss);
}

TEST_F(TcpTest, FramesBeforeTheAnswerToTheHelloAreRejected) {
  Listen();
  RawPeer stranger = RawPeer::Connect(pair_->address());
  std::vector<std::byte> bytes = EncodeFrame({.type = FrameType::kHello}, EncodeHello({}), {});
  const std::vector<std::byte> push = EncodeFrame({.type = FrameType::kPush}, {}, {});
  bytes.insert(bytes.end(), push.begin(), push.end());

  stranger.Send(bytes);

  EXPECT_TRUE(stranger.WaitForEnd());
  EXPECT_EQ(Rejection().code(), absl::StatusCode::kDataLoss);
}

TEST_F(TcpTest, ASilentConnectionIsClosedAfterTheHandshakeTimeout) {
  Listen({.handshake_timeout = milliseconds(50)});
  RawPeer stranger = RawPeer::Connect(pair_->address());
  const std::vector<std::byte> hello =
      EncodeFrame({.type = FrameType::kHello}, EncodeHello({}), {});

  stranger.Send(std::span(hello).first(10));

  EXPECT_TRUE(stranger.WaitForEnd());
  const absl::Status why = Rejection();
  EXPECT_EQ(why.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(why.message()), HasSubstr("0.05 s"));
}

TEST_F(TcpTest, SilentConnectionsCannotKeepOthersOut) {
  Listen({.handshake_timeout = std::chrono::hours(1)});
  std::vector<RawPeer> silent;
  silent.reserve(150);
  for (int i = 0; i < 150; ++i) silent.push_back(RawPeer::Connect(pair_->address()));

  ExpectServes();

  // 128 may wait; older ones were closed.
  EXPECT_TRUE(pair_->acceptor().WaitForRejections(22));
  EXPECT_TRUE(silent.front().WaitForEnd());
  EXPECT_EQ(pair_->acceptor().rejections().front().code(), absl::StatusCode::kResourceExhausted);
}

// ---- peers that misbehave after it ----

struct Damage {
  const char* name;
  std::function<void(RawPeer&)> send;
  const char* text;
};

class TcpDamageTest : public TcpTest, public ::testing::WithParamInterface<Damage> {};

TEST_P(TcpDamageTest, EndsThatConnectionOnlyAndNamesThePeer) {
  Listen();
  RawPeer peer = Shake(HostIdentity());
  pair_->ConnectBoth();

  GetParam().send(peer);

  EXPECT_TRUE(peer.WaitForEnd());
  ASSERT_TRUE(server_->recorder->WaitForClosed());
  EXPECT_EQ(server_->recorder->closed()->code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(server_->recorder->closed()->message()),
              AllOf(HasSubstr("worker-7 at 127.0.0.1:"), HasSubstr(GetParam().text)));
  EXPECT_EQ(server_->recorder->num_frames(), 0U);
  SendOne(pair_->client(), PushFrame(1, {}));
  EXPECT_TRUE(pair_->server().recorder->WaitForFrames(1));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds,
    TcpDamageTest,
    ::testing::Values(
        Damage{
            "RandomBytes", [](RawPeer& peer) { peer.Send(Pattern(5000)); }, "not a Pushpull frame"},
        Damage{"OversizedPayload",
               [](RawPeer& peer) {
                 peer.SendFrame(
                     {.type = FrameType::kPush, .payload_bytes = kFramePayloadBytesMax + 1});
               },
               "payload 1048577"},
        Damage{"WrongHeaderChecksum",
               [](RawPeer& peer) {
                 std::vector<std::byte> frame = EncodeFrame({.type = FrameType::kPush}, {}, {});
                 frame[50] ^= std::byte{1};
                 peer.Send(frame);
               },
               "wrong checksum"},
        Damage{"WrongPayloadChecksum",
               [](RawPeer& peer) {
                 peer.SendFrame({.type = FrameType::kPush,
                                 .flags = kFlagPayloadChecksum,
                                 .chunk = ChunkId{17},
                                 .payload_checksum = 1},
                                {},
                                Pattern(1000));
               },
               "chunk 17 has a wrong checksum"},
        Damage{
            "SecondHello", [](RawPeer& peer) { peer.SendHello(HostIdentity()); }, "second hello"}),
    [](const auto& damage) { return std::string(damage.param.name); });

TEST_F(TcpTest, APayloadIsLostWhenItsPeerDies) {
  Listen();
  RawPeer peer = Shake(HostIdentity());
  const std::vector<std::byte> frame = EncodeFrame({.type = FrameType::kPush}, {}, Pattern(5000));

  peer.Send(std::span(frame).first(3000));
  peer.Close();

  ASSERT_TRUE(server_->recorder->WaitForClosed());
  EXPECT_THAT(server_->recorder->events(), ElementsAre("lost", "closed"));
  EXPECT_EQ(server_->recorder->closed()->code(), absl::StatusCode::kUnavailable);
}

// ---- the connecting side ----

TEST_F(TcpTest, ASilentServerFailsConnectAtItsDeadline) {
  Listen();
  RawListener mute;
  ConnectRequest request = pair_->Request();
  request.address = mute.address();
  request.deadline = Deadline::After(milliseconds(50));

  const absl::Status status = pair_->Connect(request).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("server-3 at " + mute.address()));
}

// The client's error when a server answers its hello with `answer`.
absl::Status ConnectToServerThat(ChannelPair& pair, const std::function<void(RawPeer&)>& answer) {
  RawListener listener;
  std::thread server([&] {
    RawPeer peer = listener.Accept();
    EXPECT_TRUE(peer.ReceiveFrame().ok());
    answer(peer);
    peer.WaitForEnd();
  });
  ConnectRequest request = pair.Request();
  request.address = listener.address();
  const absl::StatusOr<std::shared_ptr<RecordedChannel>> channel = pair.Connect(request);
  if (channel.ok()) ChannelPair::Drop(**channel);
  server.join();
  return channel.status();
}

TEST_F(TcpTest, AMalformedAnswerToTheHelloIsDataLoss) {
  Listen();

  EXPECT_EQ(ConnectToServerThat(*pair_, [](RawPeer& peer) { peer.Send(Pattern(500)); }).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ConnectToServerThat(
                *pair_,
                [](RawPeer& peer) { peer.SendFrame({.type = FrameType::kPush}, {}, Pattern(10)); })
                .code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(TcpTest, AServerThatHangsUpIsUnavailable) {
  Listen();

  const absl::Status status = ConnectToServerThat(*pair_, [](RawPeer& peer) { peer.Close(); });

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("server-3"));
}

TEST_F(TcpTest, AHostNameIsLookedUpAndEveryAddressTried) {
  Listen();
  ConnectRequest request = pair_->Request();
  // Often ::1 comes first, where nobody listens.
  request.address = "localhost" + request.address.substr(request.address.rfind(':'));

  const absl::StatusOr<std::shared_ptr<RecordedChannel>> channel = pair_->Connect(request);

  EXPECT_TRUE(channel.ok()) << channel.status();
}

// ---- hosts and clocks ----

TEST_F(TcpTest, PayloadsHaveAChecksumBetweenHostsOnly) {
  // Static: the peer may have it before the sender's thread has finished reading it.
  static const std::vector<std::byte> payload = Pattern(1000);
  for (const bool is_same_host : {true, false}) {
    Listen({.host = 1}, {.host = is_same_host ? 1U : 2U});
    pair_->ConnectBoth();

    SendOne(pair_->client(), PushFrame(1, payload));
    SendOne(pair_->server(), PushFrame(2, payload));

    for (const RecordedChannel* end : {&pair_->client(), &pair_->server()}) {
      ASSERT_TRUE(end->recorder->WaitForFrames(1));
      const FrameHeader header = end->recorder->frames().front().header;
      EXPECT_EQ(header.flags, is_same_host ? 0 : kFlagPayloadChecksum);
    }
  }
}

TEST_F(TcpTest, TheConnectingSideMeasuresAForeignClock) {
  Listen();
  RawListener listener;
  constexpr int64_t kAhead = 1'000'000'000'000;  // ns
  std::thread server([&] {
    RawPeer peer = listener.Accept();
    const absl::StatusOr<OutgoingFrame> hello = peer.ReceiveFrame();
    ASSERT_TRUE(hello.ok()) << hello.status();
    const int64_t now = hello->header.sent_at + kAhead;
    peer.SendFrame({.type = FrameType::kHelloAck, .sent_at = now},
                   EncodeHelloAck({.lane_count = 1,
                                   .host = 12345,
                                   .hello_sent_at = hello->header.sent_at,
                                   .hello_received_at = now}));
    peer.WaitForEnd();
  });
  ConnectRequest request = pair_->Request();
  request.address = listener.address();

  const absl::StatusOr<std::shared_ptr<RecordedChannel>> channel = pair_->Connect(request);

  ASSERT_TRUE(channel.ok()) << channel.status();
  // Half of a round trip that includes starting a thread.
  EXPECT_NEAR(ToSeconds((*channel)->channel->clock_offset()), 1000, 5);
  ChannelPair::Drop(**channel);
  server.join();
}

TEST_F(TcpTest, TheAcceptingSideLearnsTheClockFromPings) {
  Listen();
  RawPeer peer = Shake(HostIdentity() + 1);
  ByteWriter meta;
  meta.Put(int64_t{-7'000'000'000});

  peer.SendFrame({.type = FrameType::kPing, .sent_at = 11}, meta.Take());

  const absl::StatusOr<OutgoingFrame> pong = peer.ReceiveFrame();
  ASSERT_TRUE(pong.ok()) << pong.status();
  EXPECT_EQ(pong->header.type, FrameType::kPong);
  ByteReader reader(pong->meta);
  EXPECT_EQ(reader.Get<int64_t>(), 11);
  EXPECT_LE(reader.Get<int64_t>(), pong->header.sent_at);
  Duration offset{0};
  ASSERT_TRUE(RunOn(*server_->executor, [&] { offset = server_->channel->clock_offset(); }));
  EXPECT_EQ(offset, seconds(7));
  EXPECT_EQ(server_->recorder->num_frames(), 0U);
}

TEST_F(TcpTest, PingsWithPayloadsDoNotReachTheHandler) {
  Listen();
  RawPeer peer = Shake(HostIdentity());

  peer.SendFrame({.type = FrameType::kPing}, {}, Pattern(1000));
  peer.SendFrame({.type = FrameType::kPush}, {}, {});

  ASSERT_TRUE(server_->recorder->WaitForFrames(1));
  EXPECT_EQ(server_->recorder->frames().front().header.type, FrameType::kPush);
}

}  // namespace
}  // namespace pushpull
