// SPDX-License-Identifier: Apache-2.0
//
// The grpc transport: peers without HTTP/2, certificates, gRPC's own threads.
// What all transports have in common is in conformance_test.cc.
#include "runtime/transport/grpc/grpc_transport.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/transport/stream/transport_options.h"
#include "tests/fakes/fake_tls_folder.h"
#include "tests/unit/runtime/transport/channel_rig.h"
#include "tests/unit/runtime/transport/raw_peer.h"

namespace pushpull {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

class GrpcTest : public ::testing::Test {
 protected:
  void Listen(const TransportOptions& server = {}, const TransportOptions& client = {}) {
    pair_ = std::make_unique<ChannelPair>(MakeGrpcRig(client, server));
    pair_->Listen();
  }
  absl::Status Refusal() { return pair_->Connect(pair_->Request()).status(); }
  // An honest client can still connect and send.
  void ExpectServes() {
    pair_->ConnectBoth();
    SendOne(pair_->client(), PushFrame(1, {}));
    EXPECT_TRUE(pair_->server().recorder->WaitForFrames(1));
  }

  TlsFiles NewFiles() const { return MakeTlsFiles(authority_); }
  TlsFiles Named(const std::string& member) const {
    return MakeNamedTlsFiles(authority_,
                             {"pushpull", MemberCertificateName(member, "mnist", "ml")});
  }

  const FakeCertificate authority_ = MakeAuthority("job-1");
  FakeTlsMember first_{NewFiles()};
  FakeTlsMember second_{NewFiles()};
  std::unique_ptr<ChannelPair> pair_;  // uses both
};

TEST_F(GrpcTest, RandomBytesEndTheirOwnConnectionOnly) {
  Listen();
  RawPeer stranger = RawPeer::Connect(pair_->address());

  stranger.Send(Pattern(10'000));

  EXPECT_TRUE(stranger.WaitForEnd());
  ExpectServes();
}

TEST_F(GrpcTest, AnIdleConnectionTimesOut) {
  Listen({.handshake_timeout = milliseconds(50)});

  RawPeer stranger = RawPeer::Connect(pair_->address());

  EXPECT_TRUE(stranger.WaitForEnd());
}

TEST_F(GrpcTest, BetweenHostsHasChecksumsAndClockOffsets) {
  Listen({.host = 1}, {.host = 2});
  pair_->ConnectBoth();
  // Static: the peer may have it before the sender's thread has finished reading it.
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

TEST_F(GrpcTest, ASilentServerFailsConnectAtItsDeadline) {
  Listen();
  RawListener mute;
  ConnectRequest request = pair_->Request();
  request.address = mute.address();
  request.deadline = Deadline::After(milliseconds(50));

  const absl::Status why = pair_->Connect(request).status();

  EXPECT_EQ(why.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(why.message()), HasSubstr("server-3 at " + mute.address()));
}

TEST_F(GrpcTest, ATransportCanBeDestroyedWhileConnecting) {
  RawListener mute;
  EventLoop loop("client");
  auto transport =
      std::make_unique<GrpcTransport>(std::vector<EventLoop*>{&loop}, TransportOptions());
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

TEST_F(GrpcTest, AWorkerConnectsAsItselfOnly) {
  const FakeTlsMember server(Named("server-3"));
  const FakeTlsMember worker(Named("worker-7"));
  Listen({.tls = server.tls.get()}, {.tls = worker.tls.get()});
  ConnectRequest another = pair_->Request();
  another.hello.worker = WorkerId{6};
  ConnectRequest impostor = pair_->Request();
  impostor.hello.server = ServerId{7};

  for (const ConnectRequest& request : {another, impostor}) {
    const absl::Status why = pair_->Connect(request).status();
    EXPECT_EQ(why.code(), absl::StatusCode::kPermissionDenied) << why;
    EXPECT_THAT(std::string(why.message()),
                AllOf(HasSubstr("worker-7.mnist.ml.pushpull"), HasSubstr(PeerName(request.hello))));
  }
  ExpectServes();
}

TEST_F(GrpcTest, OnlyTheServersCertificateIsTakenForTheServer) {
  FakeTlsMember server(Named("worker-3"));
  const FakeTlsMember worker(Named("worker-7"));
  Listen({.tls = server.tls.get()}, {.tls = worker.tls.get()});
  ConnectRequest request = pair_->Request();
  request.server = ServerId{3};
  request.deadline = Deadline::After(std::chrono::seconds(2));

  const absl::Status why = pair_->Connect(request).status();
  server.folder.Swap(Named("server-3"));
  server.tls->Reload();
  request.deadline = Deadline::After(std::chrono::seconds(10));
  const absl::Status next = pair_->Connect(request).status();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_TRUE(next.ok()) << next;
}

TEST_F(GrpcTest, AServerRejectsAMemberOfAnotherJob) {
  const FakeTlsMember server(Named("server-3"));
  const FakeTlsMember stranger(MakeNamedTlsFiles(
      authority_, {"pushpull", "mnist.ml.pushpull", "worker-7.other.ml.pushpull"}));
  Listen({.tls = server.tls.get()}, {.tls = stranger.tls.get()});

  EXPECT_EQ(Refusal().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(GrpcTest, AMemberOfAnotherJobIsRejected) {
  const FakeTlsMember stranger(MakeTlsFiles());
  Listen({.tls = first_.tls.get()}, {.tls = stranger.tls.get()});

  const absl::Status why = Refusal();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(why.message()),
              AllOf(HasSubstr("server-3 at " + pair_->address()), HasSubstr("PUSHPULL_TLS_DIR")));
}

TEST_F(GrpcTest, AClientWithoutTlsIsRejectedWithAHint) {
  Listen({.tls = first_.tls.get()});

  const absl::Status why = Refusal();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(why.message()), HasSubstr("set PUSHPULL_TLS_DIR here"));
}

TEST_F(GrpcTest, NewConnectionsUseNewCertificatesOldOnesStay) {
  Listen({.tls = first_.tls.get()}, {.tls = second_.tls.get()});
  pair_->ConnectBoth();
  RecordedChannel& old_client = pair_->client();
  RecordedChannel& old_server = pair_->server();
  const FakeCertificate next_authority = MakeAuthority("job-1, later");

  first_.folder.Swap(MakeTlsFiles(next_authority));
  first_.tls->Reload();
  const absl::Status before = Refusal();
  second_.folder.Swap(MakeTlsFiles(next_authority));
  second_.tls->Reload();
  ExpectServes();
  SendOne(old_client, PushFrame(1, {}));

  EXPECT_TRUE(old_server.recorder->WaitForFrames(1));
  EXPECT_EQ(before.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace pushpull
