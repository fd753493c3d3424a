// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

#include "runtime/base/file_descriptor.h"

namespace pushpull {
namespace {

TEST(HostPortTest, SplitsAtTheLastColon) {
  const absl::StatusOr<HostPort> address = ParseHostPort("node-3.example:7170");

  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(*address, (HostPort{.host = "node-3.example", .port = 7170}));
}

TEST(HostPortTest, Ipv6BracketsAreNotPartOfTheHost) {
  const absl::StatusOr<HostPort> address = ParseHostPort("[::1]:0");

  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->host, "::1");
  EXPECT_EQ(ToString(*address), "[::1]:0");
}

TEST(HostPortTest, NamesAnInvalidAddress) {
  for (const absl::string_view text :
       {"", "host", ":80", "host:", "host:65536", "host:-1", "host:1x", "::1:80", "[::1:80"}) {
    const absl::StatusOr<HostPort> address = ParseHostPort(text);

    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(address.status().message(), absl::StrCat("\"", text, "\"")));
  }
}

TEST(HostPortTest, ReportsAPortInUse) {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof where;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&where), length), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&where), &length), 0);
  const HostPort taken{.host = "127.0.0.1", .port = ntohs(where.sin_port)};

  const absl::Status status = BindTo(taken).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), ToString(taken))) << status;
}

TEST(HostPortTest, BindsToAFreePort) {
  EXPECT_TRUE(BindTo({.host = "127.0.0.1", .port = 0}).ok());
}

TEST(HostPortTest, CannotBindToAForeignAddress) {
  // 192.0.2.0/24 is reserved for documentation (RFC 5737).
  const absl::Status status = BindTo({.host = "192.0.2.1", .port = 0}).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST(IsWildcardTest, KnowsEverySpellingOfAllAddresses) {
  for (const char* host : {"0.0.0.0", "0", "::", "0:0:0:0:0:0:0:0"})
    EXPECT_TRUE(IsWildcard({.host = host, .port = 7171})) << host;
  for (const char* host : {"127.0.0.1", "10.0.0.0", "::1", "localhost", "node-3"})
    EXPECT_FALSE(IsWildcard({.host = host, .port = 7171})) << host;
}

}  // namespace
}  // namespace pushpull
