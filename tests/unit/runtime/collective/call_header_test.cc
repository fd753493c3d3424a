// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/call_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr CallHeader kCall = {.sequence = 3,
                              .collective = Collective::kBroadcast,
                              .algorithm = Algorithm::kTree,
                              .root = 2,
                              .element_bytes = 4,
                              .elements = 100,
                              .op = 7};

TEST(CallHeaderTest, TheSameCallAgrees) {
  EXPECT_TRUE(CheckCallHeader(kCall, EncodeCallHeader(kCall)).ok());
}

TEST(CallHeaderTest, AnotherCallIsSaidWithBoth) {
  CallHeader other = kCall;
  other.elements = 99;

  const absl::Status status = CheckCallHeader(kCall, EncodeCallHeader(other));

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("call 3, broadcast by tree of 99 elements of 4 bytes from "
                                       "rank 2"),
                             HasSubstr("of 100 elements")));
}

TEST(CallHeaderTest, AnotherOperationIsSaid) {
  CallHeader other = kCall;
  other.op = 8;

  const absl::Status status = CheckCallHeader(kCall, EncodeCallHeader(other));

  EXPECT_THAT(std::string(status.message()), HasSubstr("with another operation"));
}

TEST(CallHeaderTest, OtherBytesAreNoCall) {
  const std::array<std::byte, kCallHeaderBytes> zeros{};

  EXPECT_EQ(CheckCallHeader(kCall, zeros).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(CheckCallHeader(kCall, {}).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace pushpull
