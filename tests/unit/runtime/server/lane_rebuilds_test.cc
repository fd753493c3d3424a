// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/lane_rebuilds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/server/one_shard.h"

namespace pushpull {
namespace {

// A repeated push may be answered with the version of the copy.
TEST(ShardRebuildTest, ACopySaysWhetherItsStepHadAGradient) {
  for (const bool has_gradient : {false, true}) {
    OneShard shard;
    const ChunkId chunk = shard.chunk().id();
    HostBuffer copy = Floats(kFloats, 7);
    const RebuildShard order{.shard = ShardId{0},
                             .entry = {},
                             .chunks = {{.chunk = chunk,
                                         .source = RebuiltChunk::Source::kWorker,
                                         .version = Step{3},
                                         .checksum = ChecksumPayload(copy.bytes())}},
                             .checkpoint = ""};
    ShardRebuild rebuild(order, false);
    const uint8_t flags = has_gradient ? 0 : kFlagNoGradient;
    Rebuilt report;

    ASSERT_TRUE(rebuild
                    .TakeCopy({.type = FrameType::kReturnCopy, .flags = flags, .chunk = chunk},
                              std::move(copy))
                    .ok());
    ASSERT_TRUE(rebuild.Install(shard.chunk(), report).ok());

    EXPECT_EQ(shard.chunk().state().version(), Step{3});
    EXPECT_EQ(shard.chunk().made_by().has_gradient, has_gradient);
  }
}

}  // namespace
}  // namespace pushpull
