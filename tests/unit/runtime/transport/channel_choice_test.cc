// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/channel_choice.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(ChannelChoiceTest, UnsetMeansSharedMemoryElseSockets) {
  EXPECT_EQ(ChooseChannel({})->shm_folder, "/dev/shm");
  EXPECT_FALSE(ChooseChannel({})->has_grpc);
  EXPECT_EQ(ChooseChannel({{kShmFolderVariable, "/pod"}})->shm_folder, "/pod");
  EXPECT_EQ(ChooseChannel({{kChannelVariable, "auto"}, {kShmFolderVariable, ""}})->shm_folder,
            "/dev/shm");
}

TEST(ChannelChoiceTest, TcpAndGrpcHaveNoSharedMemory) {
  for (const std::string channel : {"tcp", "grpc"}) {
    const ChannelChoice choice =
        *ChooseChannel({{kChannelVariable, channel}, {kShmFolderVariable, "/pod"}});

    EXPECT_EQ(choice.shm_folder, "");
    EXPECT_EQ(choice.has_grpc, channel == "grpc");
  }
}

TEST(ChannelChoiceTest, AnUnknownValueIsNamed) {
  const absl::Status why = ChooseChannel({{kChannelVariable, "shn"}}).status();

  EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(why.message(), "PUSHPULL_CHANNEL: must be auto, tcp or grpc, is \"shn\"");
}

}  // namespace
}  // namespace pushpull
