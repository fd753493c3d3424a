// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/own_host.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(OwnHostTest, AddressesAndLocalhostAreOwn) {
  for (const char* host : {"127.0.0.1",
                           "127.0.0.1:9464",
                           "10.1.2.3:80",
                           "[::1]",
                           "[fe80::1]:9464",
                           "localhost",
                           "LocalHost:9464",
                           "localhost.",
                           "job.localhost:1"})
    EXPECT_TRUE(IsOwnHost(host, {})) << host;
}

TEST(OwnHostTest, NamesAreOwnIfGiven) {
  for (const char* host : {"node-3", "NODE-3:9464", "node-3.:9464", "job.team.svc"})
    EXPECT_TRUE(IsOwnHost(host, {"node-3", "Job.team.svc"})) << host;
}

TEST(OwnHostTest, OtherNamesAreNot) {
  for (const char* host : {"evil.example",
                           "evil.example:9464",
                           "node-3.evil.example",
                           "127.0.0.1.evil.example",
                           "localhost.evil.example",
                           "xlocalhost",
                           "[evil.example]",
                           "[127.0.0.1]",
                           "1.2.3",
                           "",
                           ":80",
                           "."})
    EXPECT_FALSE(IsOwnHost(host, {"node-3", ""})) << host;
}

}  // namespace
}  // namespace pushpull
