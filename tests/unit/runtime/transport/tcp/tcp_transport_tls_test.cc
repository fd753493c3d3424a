// SPDX-License-Identifier: Apache-2.0
//
// The tcp transport with TLS: peers without the job's certificates, certificates that change, and
// bytes that are not TLS. What every transport does is in conformance_test.cc.
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
using ::testing::Not;

class TcpTlsTest : public ::testing::Test {
 protected:
  TcpTlsTest() : server_(NewFiles()), client_(NewFiles()) {}

  TlsFiles NewFiles() const { return MakeTlsFiles(authority_); }
  TlsFiles Named(std::vector<std::string> dns_names) const {
    dns_names.emplace_back("pushpull");
    return MakeNamedTlsFiles(authority_, dns_names);
  }
  void UseNames(const std::vector<std::string>& server, const std::vector<std::string>& client) {
    server_.folder.Swap(Named(server));
    server_.tls->Reload();
    client_.folder.Swap(Named(client));
    client_.tls->Reload();
  }
  void Listen(TransportOptions server = {}) { ListenFor({.tls = client_.tls.get()}, server); }
  void ListenFor(const TransportOptions& client, TransportOptions server = {}) {
    server.tls = server_.tls.get();
    pair_ = std::make_unique<ChannelPair>(MakeTcpRig(client, server));
    pair_->Listen();
  }
  absl::Status Refusal() { return pair_->Connect(pair_->Request()).status(); }
  absl::Status Rejection() {
    EXPECT_TRUE(pair_->acceptor().WaitForRejections(1));
    const std::vector<absl::Status> rejections = pair_->acceptor().rejections();
    return rejections.empty() ? absl::OkStatus() : rejections.front();
  }
  // Over the channel that was connected last.
  static void ExpectCarries(RecordedChannel& from, RecordedChannel& to, size_t num_frames) {
    SendOne(from, PushFrame(num_frames, {}));
    EXPECT_TRUE(to.recorder->WaitForFrames(num_frames));
  }
  void ExpectServes() {
    pair_->ConnectBoth();
    ExpectCarries(pair_->client(), pair_->server(), 1);
  }

  const FakeCertificate authority_ = MakeAuthority("job-1");
  FakeTlsMember server_;
  FakeTlsMember client_;
  std::unique_ptr<ChannelPair> pair_;  // uses both
};

// ---- peers without the job's certificates ----

TEST_F(TcpTlsTest, AMemberOfAnotherJobIsRejectedWithAReason) {
  const FakeTlsMember stranger(MakeTlsFiles());
  ListenFor({.tls = stranger.tls.get()});

  const absl::Status why = Refusal();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(why.message()),
              AllOf(HasSubstr("server-3 at " + pair_->address()),
                    HasSubstr("its certificate is rejected"),
                    HasSubstr("PUSHPULL_TLS_DIR")));
  EXPECT_EQ(Rejection().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(Rejection().message()), HasSubstr("127.0.0.1:"));
}

TEST_F(TcpTlsTest, ATrustingMemberOfAnotherJobGetsTheReason) {
  TlsFiles files = MakeTlsFiles();
  files.authorities += authority_.certificate;
  const FakeTlsMember stranger(files);
  ListenFor({.tls = stranger.tls.get()});

  const absl::Status why = Refusal();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(why.message()),
              AllOf(HasSubstr("server-3 at " + pair_->address()),
                    HasSubstr("rejects this side's certificate")));
  EXPECT_EQ(Rejection().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(Rejection().message()), HasSubstr("its certificate is rejected"));
}

TEST_F(TcpTlsTest, AClientWithoutTlsIsRejectedWithAHint) {
  ListenFor({});

  const absl::Status why = Refusal();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(why.message()),
              AllOf(HasSubstr("server-3 at " + pair_->address()), HasSubstr("PUSHPULL_TLS_DIR")));
  EXPECT_EQ(Rejection().code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(TcpTlsTest, AServerWithoutTlsIsNotTakenForADeadOne) {
  pair_ = std::make_unique<ChannelPair>(MakeTcpRig({.tls = client_.tls.get()}, {}));
  pair_->Listen();

  const absl::Status why = Refusal();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(why.message()),
              AllOf(HasSubstr("TLS handshake"), HasSubstr("PUSHPULL_TLS_DIR")));
}

// ---- names and roles ----

TEST_F(TcpTlsTest, AWorkerConnectsAsItselfOnly) {
  UseNames({"server-3.mnist.ml.pushpull"}, {"worker-7.mnist.ml.pushpull"});
  Listen();
  ConnectRequest another = pair_->Request();
  another.hello.worker = WorkerId{6};
  ConnectRequest server = pair_->Request();
  server.hello.server = ServerId{7};

  for (const ConnectRequest& request : {another, server}) {
    const absl::Status why = pair_->Connect(request).status();
    EXPECT_EQ(why.code(), absl::StatusCode::kPermissionDenied) << why;
    EXPECT_THAT(std::string(why.message()),
                AllOf(HasSubstr("server-3 at " + pair_->address()),
                      HasSubstr("worker-7.mnist.ml.pushpull"),
                      HasSubstr(PeerName(request.hello))));
  }
  ExpectServes();
}

TEST_F(TcpTlsTest, AServerConnectsAsItselfOnly) {
  UseNames({"server-3.mnist.ml.pushpull"}, {"server-7.mnist.ml.pushpull"});
  Listen();
  ConnectRequest itself = pair_->Request();
  itself.hello.server = ServerId{7};

  EXPECT_TRUE(pair_->Connect(itself).ok());
  EXPECT_EQ(Refusal().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(TcpTlsTest, OnlyTheServersCertificateIsTakenForTheServer) {
  UseNames({"worker-3.mnist.ml.pushpull"}, {"worker-7.mnist.ml.pushpull"});
  Listen();
  ConnectRequest request = pair_->Request();
  request.server = ServerId{3};

  const absl::Status why = pair_->Connect(request).status();
  server_.folder.Swap(Named({"server-3.mnist.ml.pushpull"}));
  server_.tls->Reload();

  // Another member may have taken over the address of one that moved.
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_THAT(std::string(why.message()), HasSubstr("worker-3.mnist.ml.pushpull"));
  EXPECT_TRUE(pair_->Connect(request).ok());
}

TEST_F(TcpTlsTest, NamesOfAnotherJobAreRejectedOnBothSides) {
  UseNames({"server-3.mnist.ml.pushpull"}, {"worker-7.other.ml.pushpull"});
  Listen();

  const absl::Status why = Refusal();

  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  EXPECT_THAT(std::string(why.message()), HasSubstr("another job"));
  EXPECT_EQ(Rejection().code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(TcpTlsTest, AServerRejectsAMemberOfAnotherJob) {
  UseNames({"server-3.mnist.ml.pushpull"}, {"mnist.ml.pushpull", "worker-7.other.ml.pushpull"});
  Listen();

  EXPECT_EQ(Refusal().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(TcpTlsTest, CertificatesWithoutAMembersNameAreOfAnyRole) {
  UseNames({"pushpull"}, {"mnist.ml.pushpull"});
  Listen();
  ConnectRequest server = pair_->Request();
  server.hello.server = ServerId{7};
  server.server = ServerId{3};

  ExpectServes();
  EXPECT_TRUE(pair_->Connect(server).ok());
}

// ---- certificates that change ----

TEST_F(TcpTlsTest, NewConnectionsUseNewCertificatesOldOnesStay) {
  Listen();
  pair_->ConnectBoth();
  RecordedChannel& old_client = pair_->client();
  RecordedChannel& old_server = pair_->server();
  const FakeCertificate next_authority = MakeAuthority("job-1, later");

  server_.folder.Swap(MakeTlsFiles(next_authority));
  server_.tls->Reload();
  const absl::Status before = Refusal();
  client_.folder.Swap(MakeTlsFiles(next_authority));
  client_.tls->Reload();
  ExpectServes();
  ExpectCarries(old_client, old_server, 1);

  // The client had the old one only.
  EXPECT_THAT(std::string(before.message()), HasSubstr("its certificate is rejected"));
}

TEST_F(TcpTlsTest, ABrokenReplacementChangesNothing) {
  Listen();
  TlsFiles broken = NewFiles();
  broken.private_key = NewFiles().private_key;

  server_.folder.Swap(broken);
  server_.tls->Reload();

  ExpectServes();
}

// ---- bytes ----

TEST_F(TcpTlsTest, BytesThatAreNotTlsAreRejectedAndCounted) {
  Listen();
  RawPeer stranger = RawPeer::Connect(pair_->address());

  stranger.Send(Pattern(10'000));

  EXPECT_TRUE(stranger.WaitForEnd());
  EXPECT_EQ(Rejection().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(Rejection().message()),
              AllOf(HasSubstr("127.0.0.1:"), HasSubstr("no TLS 1.3")));
  ExpectServes();
}

// The first bytes of a record that holds the first message of a handshake.
std::vector<std::byte> BeginningOfTls() {
  return {std::byte{0x16}, std::byte{0x03}, std::byte{0x01}, std::byte{0x01}, std::byte{0x00}};
}

TEST_F(TcpTlsTest, AHangingHandshakeTimesOut) {
  Listen({.handshake_timeout = milliseconds(50)});
  RawPeer stranger = RawPeer::Connect(pair_->address());

  stranger.Send(BeginningOfTls());

  EXPECT_TRUE(stranger.WaitForEnd());
  EXPECT_EQ(Rejection().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(TcpTlsTest, AHangingServerFailsConnectAtItsDeadline) {
  Listen();
  RawListener mute;
  ConnectRequest request = pair_->Request();
  request.address = mute.address();
  request.deadline = Deadline::After(milliseconds(50));

  const absl::Status why = pair_->Connect(request).status();

  EXPECT_EQ(why.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(why.message()), HasSubstr("server-3 at " + mute.address()));
}

TEST_F(TcpTlsTest, HangingHandshakesCannotKeepOthersOut) {
  Listen({.handshake_timeout = std::chrono::hours(1)});
  std::vector<RawPeer> silent;
  silent.reserve(150);
  for (int i = 0; i < 150; ++i) {
    silent.push_back(RawPeer::Connect(pair_->address()));
    silent.back().Send(BeginningOfTls());
  }

  ExpectServes();

  EXPECT_TRUE(silent.front().WaitForEnd());
}

TEST_F(TcpTlsTest, PayloadsHaveNoChecksumBetweenHosts) {
  // Static: the peer may have it before the sender's thread has finished reading it.
  static const std::vector<std::byte> payload = Pattern(1000);
  ListenFor({.host = 1, .tls = client_.tls.get()}, {.host = 2});
  pair_->ConnectBoth();

  SendOne(pair_->client(), PushFrame(1, payload));

  ASSERT_TRUE(pair_->server().recorder->WaitForFrames(1));
  EXPECT_EQ(pair_->server().recorder->frames().front().header.flags, 0);
}

}  // namespace
}  // namespace pushpull
