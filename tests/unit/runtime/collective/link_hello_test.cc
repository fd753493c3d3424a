// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/link_hello.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::HasSubstr;

const LinkHello kHello = {.group = {1, 2},
                          .from = 3,
                          .to = 1,
                          .ranks = 4,
                          .host = 99,
                          .shm = ShmOffer{.name = "inbox", .token = {5, 6}}};

LinkExpectation ExpectationOf() {
  return {.group = {1, 2},
          .rank = 1,
          .ranks = 4,
          .host = 99,
          .is_shm = true,
          .connected = std::vector<bool>(4)};
}

TEST(LinkHelloTest, MessagesAreReadBack) {
  const absl::StatusOr<LinkHello> hello = DecodeLinkHello(EncodeLinkHello(kHello));
  const absl::StatusOr<LinkWelcome> welcome = DecodeLinkWelcome(
      EncodeLinkWelcome({.admitted = absl::NotFoundError("no"), .shm = kHello.shm}));
  const absl::StatusOr<LinkReady> ready =
      DecodeLinkReady(EncodeLinkReady({.done = absl::InternalError("full")}));

  ASSERT_TRUE(hello.ok() && welcome.ok() && ready.ok());
  EXPECT_EQ(hello->group, kHello.group);
  EXPECT_EQ(hello->from, 3U);
  EXPECT_EQ(hello->shm->name, "inbox");
  EXPECT_EQ(welcome->admitted, absl::NotFoundError("no"));
  EXPECT_EQ(welcome->shm->token, kHello.shm->token);
  EXPECT_EQ(ready->done, absl::InternalError("full"));
}

TEST(LinkHelloTest, OtherBytesAreNoMessages) {
  std::vector<std::byte> cut = EncodeLinkHello(kHello);
  cut.pop_back();

  EXPECT_EQ(DecodeLinkHello(cut).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodeLinkHello(EncodeLinkReady({})).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodeLinkWelcome(EncodeLinkHello(kHello)).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodeLinkReady({}).status().code(), absl::StatusCode::kDataLoss);
}

TEST(LinkHelloTest, ARankOfTheGroupIsAdmitted) {
  EXPECT_TRUE(CheckLinkHello(kHello, ExpectationOf()).ok());
}

TEST(LinkHelloTest, WhoDoesNotBelongHereIsToldWhy) {
  struct Case {
    LinkHello hello;
    absl::StatusCode code;
    const char* text;
  };
  std::vector<Case> cases;
  const auto add = [&](auto change, absl::StatusCode code, const char* text) {
    cases.push_back({.hello = kHello, .code = code, .text = text});
    change(cases.back().hello);
  };
  add([](LinkHello& hello) { hello.group[1] = 9; },
      absl::StatusCode::kPermissionDenied,
      "another group");
  add([](LinkHello& hello) { hello.to = 0; },
      absl::StatusCode::kInvalidArgument,
      "has called for rank 0, here is rank 1 of 4");
  add([](LinkHello& hello) { hello.ranks = 5; }, absl::StatusCode::kInvalidArgument, "rank 3 of 5");
  add([](LinkHello& hello) { hello.from = 0; },
      absl::StatusCode::kInvalidArgument,
      "only higher ranks do");
  add([](LinkHello& hello) { hello.from = 4; },
      absl::StatusCode::kInvalidArgument,
      "only higher ranks do");
  add([](LinkHello& hello) { hello.from = 2; },
      absl::StatusCode::kAlreadyExists,
      "connected already");
  add([](LinkHello& hello) { hello.shm.reset(); },
      absl::StatusCode::kInvalidArgument,
      "uses tcp, here it is shm");
  add([](LinkHello& hello) { hello.host = 98; },
      absl::StatusCode::kFailedPrecondition,
      "another host");
  LinkExpectation expected = ExpectationOf();
  expected.connected[2] = true;

  for (const Case& one : cases) {
    const absl::Status status = CheckLinkHello(one.hello, expected);

    EXPECT_EQ(status.code(), one.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.text));
  }
}

}  // namespace
}  // namespace pushpull
