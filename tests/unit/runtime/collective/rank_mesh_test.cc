// SPDX-License-Identifier: Apache-2.0
//
// Who connects and does not belong to the group disturbs nobody; who is missing is named.
#include "runtime/collective/rank_mesh.h"

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/collective/link_socket.h"
#include "tests/unit/runtime/collective/rank_threads.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A connection that has said `message` when this returns, whether or not it was accepted.
TcpStream Caller(const HostPort& address, std::span<const std::byte> message) {
  absl::StatusOr<FileDescriptor> socket = ConnectToRank(address, {TestDeadline()});
  EXPECT_TRUE(socket.ok()) << socket.status();
  TcpStream stream(*std::move(socket), nullptr, TlsSide::kConnecting);
  const absl::Status sent = SendLinkMessage(stream, message, {TestDeadline()});
  EXPECT_TRUE(sent.ok()) << sent;
  return stream;
}

// What a caller is told; an error: what became of its connection.
absl::Status AnswerTo(TcpStream caller) {
  const absl::StatusOr<std::vector<std::byte>> body = ReceiveLinkMessage(caller, {TestDeadline()});
  if (!body.ok()) return body.status();
  const absl::StatusOr<LinkWelcome> welcome = DecodeLinkWelcome(*body);
  return welcome.ok() ? welcome->admitted : welcome.status();
}

TEST(RankMeshTest, StrangersAreRefusedAndDisturbNobody) {
  const absl::StatusOr<RankListener> first = RankListener::Listen({"127.0.0.1", 0});
  const absl::StatusOr<RankListener> second = RankListener::Listen({"127.0.0.1", 0});
  ASSERT_TRUE(first.ok() && second.ok());
  const MeshOptions options = {
      .addresses = {{"127.0.0.1", first->port()}, {"127.0.0.1", second->port()}},
      .group = kTestGroup};
  absl::StatusOr<LinkSet> links = absl::UnknownError("");
  std::thread rank([&] { links = ConnectRanks(*first, options, TestDeadline()); });
  const std::vector<std::byte> garbage(100, std::byte{0xFF});
  LinkHello hello = {.group = {1, 1}, .from = 1, .to = 0, .ranks = 2};

  const HostPort& address = options.addresses[0];
  const absl::Status of_garbage = AnswerTo(Caller(address, garbage));
  const absl::Status of_other_group = AnswerTo(Caller(address, EncodeLinkHello(hello)));
  hello.group = kTestGroup;
  const absl::Status of_rank = AnswerTo(Caller(address, EncodeLinkHello(hello)));
  rank.join();

  EXPECT_EQ(of_garbage.code(), absl::StatusCode::kUnavailable) << of_garbage;
  EXPECT_EQ(of_other_group.code(), absl::StatusCode::kPermissionDenied) << of_other_group;
  EXPECT_TRUE(of_rank.ok()) << of_rank;
  EXPECT_TRUE(links.ok()) << links.status();
}

TEST(RankMeshTest, MissingRanksAndTheLastRefusalAreNamed) {
  const absl::StatusOr<RankListener> listener = RankListener::Listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  const HostPort address = {"127.0.0.1", listener->port()};
  const MeshOptions options = {.addresses = {address, address, address}, .group = kTestGroup};
  const TcpStream stranger = Caller(address, EncodeLinkHello({.from = 1, .to = 0, .ranks = 3}));

  const absl::Status status =
      ConnectRanks(*listener, options, Deadline::After(std::chrono::milliseconds(50))).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("rank 0: has waited for rank 1, 2 of 3"), HasSubstr("another group")));
}

TEST(RankMeshTest, ARefusedRankSaysWhyAndWhere) {
  const absl::StatusOr<RankListener> first = RankListener::Listen({"127.0.0.1", 0});
  const absl::StatusOr<RankListener> second = RankListener::Listen({"127.0.0.1", 0});
  ASSERT_TRUE(first.ok() && second.ok());
  MeshOptions options = {.addresses = {{"127.0.0.1", first->port()}, {"127.0.0.1", second->port()}},
                         .group = kTestGroup};
  std::thread rank([&] { EXPECT_TRUE(ConnectRanks(*first, options, TestDeadline()).ok()); });
  MeshOptions other = options;
  other.rank = 1;
  other.channel = LinkChannel::kShm;

  const absl::Status status = ConnectRanks(*second, other, TestDeadline()).status();
  const TcpStream right = Caller(
      options.addresses[0], EncodeLinkHello({.group = kTestGroup, .from = 1, .to = 0, .ranks = 2}));
  rank.join();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("rank 1 to rank 0 at 127.0.0.1:"), HasSubstr("uses shm, here it is tcp")));
}

TEST(RankMeshTest, WhoIsNotThereYetOrIsWithOthersIsTriedAgain) {
  const absl::StatusOr<RankListener> first = RankListener::Listen({"127.0.0.1", 0});
  const absl::StatusOr<RankListener> second = RankListener::Listen({"127.0.0.1", 0});
  ASSERT_TRUE(first.ok() && second.ok());
  MeshOptions options = {.addresses = {{"127.0.0.1", first->port()}, {"127.0.0.1", second->port()}},
                         .group = kTestGroup,
                         .retry_pause = std::chrono::milliseconds(1)};
  MeshOptions other = options;
  other.rank = 1;
  absl::Status status;
  std::thread patient([&] { status = ConnectRanks(*second, other, TestDeadline()).status(); });

  // The first rank awaits another group, which does not come, and then this one.
  MeshOptions earlier = options;
  earlier.group = {1, 1};
  const absl::Status alone =
      ConnectRanks(*first, earlier, Deadline::After(std::chrono::milliseconds(50))).status();
  const absl::Status met = ConnectRanks(*first, options, TestDeadline()).status();
  patient.join();

  EXPECT_EQ(alone.code(), absl::StatusCode::kDeadlineExceeded) << alone;
  EXPECT_TRUE(met.ok()) << met;
  EXPECT_TRUE(status.ok()) << status;
}

TEST(RankMeshTest, ThereAreAtMost64Ranks) {
  const absl::StatusOr<RankListener> listener = RankListener::Listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  MeshOptions options = {.addresses = std::vector<HostPort>(kRanksMax + 1)};

  EXPECT_EQ(ConnectRanks(*listener, options, TestDeadline()).status().code(),
            absl::StatusCode::kInvalidArgument);
  options = {.rank = 2, .addresses = std::vector<HostPort>(2)};
  EXPECT_EQ(ConnectRanks(*listener, options, TestDeadline()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pushpull
