// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/page_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

TEST(PageHostsTest, MachineAddressAndServiceAreNames) {
  const auto hosts =
      PageHosts({.name = "mnist", .namespace_name = "team"}, "node-3", "n3:9464", "");

  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(*hosts,
              ElementsAre("node-3",
                          "n3",
                          "mnist-coordinator",
                          "mnist-coordinator.team",
                          "mnist-coordinator.team.svc",
                          "mnist-coordinator.team.svc.cluster.local"));
}

TEST(PageHostsTest, UsersNameOthers) {
  const auto hosts =
      PageHosts({.name = "mnist"}, "", "0.0.0.0:0", " train.example.com,node-3.lan,");

  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(*hosts, IsSupersetOf({"train.example.com", "node-3.lan"}));
}

TEST(PageHostsTest, WhatIsNoNameIsRefused) {
  for (const char* wrong : {"https://a.example", "a.example:80", "a b", "*.example"}) {
    const absl::Status refused = PageHosts({.name = "mnist"}, "", "0.0.0.0:0", wrong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(refused.message(), HasSubstr(wrong));
    EXPECT_THAT(refused.message(), HasSubstr("PUSHPULL_PAGE_HOSTS"));
  }
}

}  // namespace
}  // namespace pushpull
