// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "runtime/transport/channel_choice.h"

namespace pushpull {
namespace {

TEST(SocketBuffersTest, AreBoundedByDefault) {
  for (const auto& environment :
       {std::map<std::string, std::string>{}, {{"PUSHPULL_SOCKET_BUFFER_BYTES", ""}}}) {
    const SocketBuffers buffers = *SocketBuffersFrom(environment);

    EXPECT_EQ(buffers.bytes, 64 * 1024);
    EXPECT_EQ(buffers.bytes_on_host, 256 * 1024);
    EXPECT_EQ(buffers.unsent_bytes_max, SocketBuffers().unsent_bytes_max);
    EXPECT_GT(buffers.unsent_bytes_max, 0);
  }
}

TEST(SocketBuffersTest, FollowTheEnvironment) {
  const SocketBuffers buffers = *SocketBuffersFrom(
      {{"PUSHPULL_SOCKET_BUFFER_BYTES", "4194304"}, {"PUSHPULL_UNSENT_BYTES", "0"}});

  EXPECT_EQ(buffers.bytes, 4194304);
  EXPECT_EQ(buffers.bytes_on_host, 4194304);
  EXPECT_EQ(buffers.unsent_bytes_max, 0);
}

TEST(SocketBuffersTest, AnInvalidSizeIsNamed) {
  for (const std::string text : {"0", "4095", "67108865", "-1", "64k", "99999999999"}) {
    const absl::Status why = SocketBuffersFrom({{"PUSHPULL_SOCKET_BUFFER_BYTES", text}}).status();

    EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(why.message(),
              "PUSHPULL_SOCKET_BUFFER_BYTES: must be a number of bytes between 4096 and 67108864, "
              "is \"" +
                  text + "\"");
  }
  EXPECT_EQ(SocketBuffersFrom({{"PUSHPULL_UNSENT_BYTES", "1"}}).status().message(),
            "PUSHPULL_UNSENT_BYTES: must be a number of bytes between 4096 and 67108864, or 0 for "
            "no bound, is \"1\"");
}

}  // namespace
}  // namespace pushpull
