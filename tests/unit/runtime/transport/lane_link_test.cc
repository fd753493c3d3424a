// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/lane_link.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/event_loop.h"
#include "runtime/transport/grpc/grpc_transport.h"
#include "runtime/transport/tcp/tcp_transport.h"
#include "tests/unit/runtime/transport/channel_rig.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RefusalRecorder final : public LaneLinkHandler {
 public:
  void OnLinkUp(LaneLink&) override { ADD_FAILURE() << "connected"; }
  void OnLinkRefused(LaneLink&, const absl::Status& why) override { refusal = why; }
  void OnLinkWaiting(LaneLink&, const absl::Status& why, Duration) override {
    ADD_FAILURE() << "goes on trying: " << why;
  }
  std::span<std::byte> PayloadBuffer(LaneLink&, const FrameHeader&) override { return {}; }
  void OnFrame(LaneLink&, const ReceivedFrame&) override {}

  absl::Status refusal;
};

// What becomes of a link to `address`.
absl::Status RefusalOf(Transport& transport, EventLoop& loop, const std::string& address) {
  RefusalRecorder recorder;
  std::unique_ptr<LaneLink> link;
  EXPECT_TRUE(RunOn(loop, [&] {
    link = std::make_unique<LaneLink>(
        transport,
        loop,
        LaneLinkTarget{.server = ServerId{1}, .address = address, .hello = {}},
        recorder);
  }));
  EXPECT_TRUE(RunOn(loop, [&] { link.reset(); }));
  return recorder.refusal;
}

TEST(LaneLinkTest, AServerOfAnotherTransportFailsWithAHint) {
  EventLoop loop("loop");
  TcpTransport tcp({&loop}, {});
  GrpcTransport grpc({&loop}, {});

  const absl::Status over_tcp = RefusalOf(tcp, loop, "grpc://127.0.0.1:1");
  const absl::Status over_grpc = RefusalOf(grpc, loop, "127.0.0.1:1");

  EXPECT_EQ(over_tcp.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(over_tcp.message()),
      AllOf(HasSubstr("server-1 at grpc://127.0.0.1:1 uses gRPC"), HasSubstr("PUSHPULL_CHANNEL")));
  EXPECT_EQ(over_grpc.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(over_grpc.message()),
      AllOf(HasSubstr("server-1 at 127.0.0.1:1 does not use gRPC"), HasSubstr("PUSHPULL_CHANNEL")));
}

}  // namespace
}  // namespace pushpull
