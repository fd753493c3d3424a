// SPDX-License-Identifier: Apache-2.0
//
// What only the grpc transport can meet: strangers to HTTP/2, certificates, gRPC's own threads.
// What every transport does is in conformance_test.cc.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/transport/grpc/grpc_options.h"
#include "runtime/transport/grpc/grpc_transport.h"
#include "tests/fakes/fake_tls_folder.h"
#include "tests/unit/runtime/transport/channel_rig.h"
#include "tests/unit/runtime/transport/raw_peer.h"

namespace pushpull {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A member and its folder.
struct Member {
  explicit Member(const TlsFiles& files)
      : folder(files), tls(*TlsFolder::Open(folder.path(), Log("test"))) {}

  FakeTlsFolder folder;
  const std::unique_ptr<TlsFolder> tls;
};

class GrpcTest : public ::testing::Test {
 protected:
  void Listen(const GrpcOptions& server = {}, const GrpcOptions& client = {}) {
    pair_ = std::make_unique<ChannelPair>(MakeGrpcRig(client, server));
    pair_->Listen();
  }
  absl::Status Refusal() { return pair_->Connect(pair_->Request()).status(); }
  // An honest client still gets in and through.
  void ExpectServes() {
    pair_->ConnectBoth();
    SendOne(pair_->client(), PushFrame(1, {}));
    EXPECT_TRUE(pair_->server().recorder->WaitForFrames(1));
  }

  TlsFiles NewFiles() const { return NewFiles(authority_); }
  static TlsFiles NewFiles(const FakeCertificate& authority) {
    return MakeTlsFiles(authority, MakeCertificate("member", authority));
  }

  const FakeCertificate authority_ = MakeAuthority("job-1");
  Member first_{NewFiles()};
  Member second_{NewFiles()};
  std::unique_ptr<ChannelPair> pair_;  // uses both
};

TEST_F(GrpcTest, RandomBytesEndTheirOwnConnectionOnly) {
  Listen();
  RawPeer stranger = RawPeer::Connect(pair_->address());

  stranger.Send(Pattern(10'000));

  EXPECT_TRUE(stranger.WaitForEnd());
  ExpectServes();
}

TEST_F(GrpcTest, AConnectionThatBeginsNothingIsGivenUpInTime) {
  Listen({.handshake_timeout = milliseconds(50)});

  RawPeer stranger = RawPeer::Connect(pair_->address());

  EXPECT_TRUE(stranger.WaitForEnd());
}

TEST_F(GrpcTest, BetweenHostsPayloadsHaveChecksumsAndClocksAreCompared) {
  Listen({.host = 1}, {.host = 2});
  pair_->ConnectBoth();
  // Static: that the peer has it does not order the sender's read before the end of the test.
  static const std::vector<std::byte> payload = Pattern(10'000);

  SendOne(pair_->client(), PushFrame(1, payload));

  ASSERT_TRUE(pair_->server().recorder->WaitForFrames(1));
  const RecordedFrame received = pair_->server().recorder->frames().front();
  EXPECT_EQ(received.header.flags, kFlagPayloadChecksum);
  EXPECT_TRUE(received.payload == payload);
  Duration offset = std::chrono::hours(1);
  ASSERT_TRUE(
      RunOn(*pair_->client().executor, [&] { offset = pair_->client().channel->clock_offset(); }));
  EXPECT_LT(std::chrono::abs(offset), std::chrono::minutes(1));
}

TEST_F(GrpcTest, AServerThatIsMuteIsGivenUpAtTheDeadline) {
  Listen();
  RawListener mute;
  ConnectRequest request = pair_->Request();
  request.address = mute.address();
  request.deadline = Deadline::After(milliseconds(50));

  const absl::Status why = pair_->Connect(request).status();

  EXPECT_EQ(why.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(why.message()), HasSubstr("server-3 at " + mute.address()));
}

TEST_F(GrpcTest, ATransportEndsWhileItConnects) {
  RawListener mute;
  EventLoop loop("client");
  auto transport = std::make_unique<GrpcTransport>(std::vector<EventLoop*>{&loop}, GrpcOptions());
  transport->Connect(
      {.address = mute.address(),
       .peer_name = "server-3",
       .hello = {},
       .deadline = Deadline::After(std::chrono::hours(1))},
      [](const absl::StatusOr<std::unique_ptr<Channel>>& channel) { EXPECT_FALSE(channel.ok()); });
  ASSERT_TRUE(RunOn(loop, [] {}));

  transport.reset();
}

// ---- certificates ----

TEST_F(GrpcTest, AMemberOfAnotherJobIsRefused) {
  const Member stranger(MakeTlsFiles());
  Listen({.tls = first_.tls.get()}, {.tls = stranger.tls.get()});

  const absl::Status why = Refusal();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(why.message()),
              AllOf(HasSubstr("server-3 at " + pair_->address()), HasSubstr("PUSHPULL_TLS_DIR")));
}

TEST_F(GrpcTest, AClientWithoutTlsIsRefusedAndToldWhatToSet) {
  Listen({.tls = first_.tls.get()});

  const absl::Status why = Refusal();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(why.message()), HasSubstr("set PUSHPULL_TLS_DIR here"));
}

TEST_F(GrpcTest, NewConnectionsUseNewCertificatesAndOldOnesGoOn) {
  Listen({.tls = first_.tls.get()}, {.tls = second_.tls.get()});
  pair_->ConnectBoth();
  RecordedChannel& old_client = pair_->client();
  RecordedChannel& old_server = pair_->server();
  const FakeCertificate next_authority = MakeAuthority("job-1, later");

  first_.folder.Swap(NewFiles(next_authority));
  first_.tls->Look();
  const absl::Status before = Refusal();
  second_.folder.Swap(NewFiles(next_authority));
  second_.tls->Look();
  ExpectServes();
  SendOne(old_client, PushFrame(1, {}));

  EXPECT_TRUE(old_server.recorder->WaitForFrames(1));
  EXPECT_EQ(before.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace pushpull
