// SPDX-License-Identifier: Apache-2.0
//
// Two ends over a pair of sockets, driven by turns on one thread.
#include "runtime/tls/tls_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/file_descriptor.h"
#include "tests/fakes/fake_tls_folder.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Bytes = std::vector<std::byte>;

Bytes Pattern(size_t num_bytes) {
  Bytes bytes(num_bytes);
  for (size_t i = 0; i < num_bytes; ++i) bytes[i] = static_cast<std::byte>(i * 167 + i / 251);
  return bytes;
}

iovec Whole(Bytes& bytes) {
  return {bytes.data(), bytes.size()};
}

// What is left of `buffers` after their first `skip` bytes.
std::vector<iovec> Rest(std::span<const iovec> buffers, size_t skip) {
  std::vector<iovec> rest;
  for (const iovec& buffer : buffers) {
    const size_t skipped = std::min(skip, buffer.iov_len);
    skip -= skipped;
    rest.push_back({static_cast<std::byte*>(buffer.iov_base) + skipped, buffer.iov_len - skipped});
  }
  return rest;
}

class TlsStreamTest : public testing::Test {
 protected:
  TlsStreamTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    near_ = FileDescriptor(ends[0]);
    far_ = FileDescriptor(ends[1]);
  }

  static std::shared_ptr<const TlsIdentity> Member(const FakeCertificate& authority) {
    return *TlsIdentity::Create(MakeTlsFiles(authority, MakeCertificate("member", authority)));
  }
  std::shared_ptr<const TlsIdentity> Named(const std::vector<std::string>& dns_names) const {
    return *TlsIdentity::Create(MakeNamedTlsFiles(authority_, dns_names));
  }
  void Open() { Open(Member(authority_), Member(authority_)); }
  void Open(const std::shared_ptr<const TlsIdentity>& client,
            const std::shared_ptr<const TlsIdentity>& server) {
    client_ = std::make_unique<TlsStream>(client, TlsSide::kConnecting, near_.get());
    server_ = std::make_unique<TlsStream>(server, TlsSide::kAccepting, far_.get());
  }

  // Moves `buffers` from one end to the other, both by turns.
  static Bytes Carry(TlsStream& from, TlsStream& to, std::span<const iovec> buffers) {
    size_t num_bytes = 0;
    for (const iovec& buffer : buffers) num_bytes += buffer.iov_len;
    Bytes received(num_bytes);
    size_t num_sent = 0;
    size_t num_received = 0;
    for (int turns = 0; num_received < num_bytes && turns < 10'000; ++turns) {
      const auto sent = from.Send(Rest(buffers, num_sent));
      const iovec room{received.data() + num_received, num_bytes - num_received};
      const auto got = to.Receive(std::span(&room, 1));
      EXPECT_TRUE(sent.ok() && got.ok()) << sent.status() << got.status();
      if (!sent.ok() || !got.ok()) break;
      num_sent += sent->num_bytes;
      num_received += got->num_bytes;
      // The handshake's messages of the sending side are received by it.
      EXPECT_TRUE(num_sent > 0 || from.Receive({}).ok());
    }
    EXPECT_EQ(num_received, num_bytes);
    return received;
  }

  // Lets both ends act until each has failed or nothing happens any more.
  std::pair<absl::Status, absl::Status> Failures() {
    Bytes byte(1);
    Bytes room(1);
    const iovec out = Whole(byte);
    const iovec in = Whole(room);
    absl::Status client;
    absl::Status server;
    for (int turns = 0; turns < 10; ++turns) {
      if (client.ok()) client = client_->Send(std::span(&out, 1)).status();
      if (server.ok()) server = server_->Receive(std::span(&in, 1)).status();
      if (client.ok()) client = client_->Receive(std::span(&in, 1)).status();
    }
    return {client, server};
  }

  const FakeCertificate authority_ = MakeAuthority("job-1");
  FileDescriptor near_;
  FileDescriptor far_;
  std::unique_ptr<TlsStream> client_;
  std::unique_ptr<TlsStream> server_;
};

TEST_F(TlsStreamTest, BytesOfManyBuffersArriveInOrderInBothDirections) {
  Open();
  Bytes header = Pattern(128);
  Bytes none;
  Bytes payload = Pattern(1'000'000);
  Bytes tail = Pattern(20'000);
  const std::vector<iovec> buffers = {Whole(header), Whole(none), Whole(payload), Whole(tail)};
  Bytes expected = header;
  expected.insert(expected.end(), payload.begin(), payload.end());
  expected.insert(expected.end(), tail.begin(), tail.end());

  EXPECT_TRUE(Carry(*client_, *server_, buffers) == expected);
  EXPECT_TRUE(Carry(*server_, *client_, buffers) == expected);
}

TEST_F(TlsStreamTest, NoPlaintextIsOnTheWire) {
  Open();
  Bytes hello = Pattern(1);
  const iovec out = Whole(hello);
  Carry(*client_, *server_, std::span(&out, 1));
  std::string secret = "the gradient of a layer";
  const iovec words{secret.data(), secret.size()};

  ASSERT_TRUE(client_->Send(std::span(&words, 1)).ok());

  std::string wire(4096, '\0');
  const ssize_t got = recv(far_.get(), wire.data(), wire.size(), 0);
  ASSERT_GT(got, static_cast<ssize_t>(secret.size()));
  EXPECT_EQ(wire.find(secret), std::string::npos);
}

TEST_F(TlsStreamTest, ASenderIsStoppedByAPeerThatDoesNotRead) {
  Open();
  Bytes one = Pattern(1);
  const iovec first = Whole(one);
  Carry(*client_, *server_, std::span(&first, 1));
  Bytes payload = Pattern(64 * 1024);
  const iovec out = Whole(payload);

  size_t num_sent = 0;
  absl::StatusOr<Transfer> sent = client_->Send(std::span(&out, 1));
  for (int calls = 0; calls < 1000 && sent.ok() && sent->wait == Transfer::Wait::kNothing;
       ++calls) {
    num_sent += sent->num_bytes;
    sent = client_->Send(std::span(&out, 1));
  }

  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->wait, Transfer::Wait::kWritable);
  EXPECT_TRUE(client_->has_unsent());
  // Bytes that Send took arrive once the peer reads, without being offered again.
  num_sent += sent->num_bytes;
  Bytes received(num_sent);
  size_t num_received = 0;
  for (int turns = 0; turns < 10'000 && num_received < num_sent; ++turns) {
    const iovec room{received.data() + num_received, num_sent - num_received};
    const auto got = server_->Receive(std::span(&room, 1));
    ASSERT_TRUE(got.ok()) << got.status();
    num_received += got->num_bytes;
    ASSERT_TRUE(client_->Send({}).ok());
  }
  EXPECT_EQ(num_received, num_sent);
  EXPECT_FALSE(client_->has_unsent());
}

TEST_F(TlsStreamTest, ReportsWhatTheLibraryHasReadAhead) {
  Open();
  Bytes some = Pattern(1000);
  const iovec out = Whole(some);
  Carry(*client_, *server_, std::span(&out, 1));
  ASSERT_TRUE(client_->Send(std::span(&out, 1)).ok());
  Bytes room(10);
  const iovec in = Whole(room);

  const auto got = server_->Receive(std::span(&in, 1));

  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->num_bytes, 10U);
  EXPECT_EQ(got->wait, Transfer::Wait::kNothing);
  EXPECT_TRUE(server_->has_read_ahead());
}

TEST_F(TlsStreamTest, ACloseIsReportedAfterTheLastBytes) {
  Open();
  Bytes some = Pattern(100);
  const iovec out = Whole(some);
  Carry(*client_, *server_, std::span(&out, 1));
  ASSERT_TRUE(client_->Send(std::span(&out, 1)).ok());
  client_.reset();
  near_.Reset();
  Bytes room(1000);
  const iovec in = Whole(room);

  const auto last = server_->Receive(std::span(&in, 1));
  const auto end = server_->Receive(std::span(&in, 1));

  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->num_bytes, 100U);
  EXPECT_TRUE(absl::IsUnavailable(end.status())) << end.status();
}

// ---- peers that are rejected ----

TEST_F(TlsStreamTest, MembersOfDifferentJobsRejectEachOther) {
  Open(Member(MakeAuthority("job-2")), Member(authority_));

  const auto [client, server] = Failures();

  EXPECT_TRUE(absl::IsUnauthenticated(client)) << client;
  EXPECT_THAT(std::string(client.message()),
              AllOf(HasSubstr("its certificate is rejected"), HasSubstr("PUSHPULL_TLS_DIR")));
  EXPECT_TRUE(absl::IsUnauthenticated(server)) << server;
  EXPECT_THAT(std::string(server.message()), HasSubstr("rejects this side's certificate"));
}

// Trusts both authorities, but is signed by the other.
std::shared_ptr<const TlsIdentity> Impostor(const FakeCertificate& authority) {
  const FakeCertificate other = MakeAuthority("job-2");
  TlsFiles files = MakeTlsFiles(other, MakeCertificate("member", other));
  files.authorities += authority.certificate;
  return *TlsIdentity::Create(files);
}

TEST_F(TlsStreamTest, ATrustingClientIsRejectedForItsCertificate) {
  Open(Impostor(authority_), Member(authority_));

  const auto [client, server] = Failures();

  EXPECT_TRUE(absl::IsUnauthenticated(server)) << server;
  EXPECT_THAT(std::string(server.message()), HasSubstr("its certificate is rejected"));
  EXPECT_TRUE(absl::IsUnauthenticated(client)) << client;
  EXPECT_THAT(std::string(client.message()), HasSubstr("rejects this side's certificate"));
}

TEST_F(TlsStreamTest, ATrustingServerIsRejectedForItsCertificate) {
  Open(Member(authority_), Impostor(authority_));

  const auto [client, server] = Failures();

  EXPECT_THAT(std::string(client.message()), HasSubstr("its certificate is rejected"));
  EXPECT_THAT(std::string(server.message()), HasSubstr("rejects this side's certificate"));
}

TEST_F(TlsStreamTest, KnowsThePeerByItsCertificate) {
  Open(Member(authority_), Named({"pushpull", "server-1.mnist.ml.pushpull"}));
  Bytes bytes = Pattern(10);
  const iovec whole = Whole(bytes);

  Carry(*server_, *client_, std::span(&whole, 1));

  EXPECT_TRUE(client_->peer().CheckIs("server-1").ok());
  EXPECT_FALSE(client_->peer().CheckIs("server-0").ok());
}

TEST_F(TlsStreamTest, APeerOfAnotherJobIsRejectedByItsName) {
  Open(Named({"pushpull", "worker-0.other.ml.pushpull"}),
       Named({"pushpull", "server-1.mnist.ml.pushpull"}));

  const auto [client, server] = Failures();

  EXPECT_THAT(std::string(client.message()), HasSubstr("server-1.mnist.ml.pushpull"));
  EXPECT_EQ(client.code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(TlsStreamTest, BytesThatAreNotTlsAreRejected) {
  Open();
  const Bytes garbage = Pattern(1000);
  ASSERT_EQ(send(near_.get(), garbage.data(), garbage.size(), 0), 1000);
  Bytes room(1);
  const iovec in = Whole(room);

  const auto got = server_->Receive(std::span(&in, 1));

  EXPECT_TRUE(absl::IsUnauthenticated(got.status())) << got.status();
  EXPECT_THAT(std::string(got.status().message()), HasSubstr("no TLS 1.3"));
}

TEST_F(TlsStreamTest, DamageAfterTheHandshakeIsDataLoss) {
  Open();
  Bytes some = Pattern(100);
  const iovec out = Whole(some);
  Carry(*client_, *server_, std::span(&out, 1));
  const Bytes garbage = Pattern(1000);
  ASSERT_EQ(send(near_.get(), garbage.data(), garbage.size(), 0), 1000);

  const auto got = server_->Receive(std::span(&out, 1));

  EXPECT_TRUE(absl::IsDataLoss(got.status())) << got.status();
}

TEST_F(TlsStreamTest, APeerThatClosesInTheHandshakeIsUnavailable) {
  Open();
  near_.Reset();
  Bytes room(1);
  const iovec in = Whole(room);

  const auto got = server_->Receive(std::span(&in, 1));

  EXPECT_TRUE(absl::IsUnavailable(got.status())) << got.status();
  EXPECT_THAT(std::string(got.status().message()), HasSubstr("TLS handshake"));
}

}  // namespace
}  // namespace pushpull
