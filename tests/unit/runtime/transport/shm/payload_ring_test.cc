// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shm/payload_ring.h"

#include <deque>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/transport/frame.h"
#include "tests/unit/runtime/transport/channel_rig.h"

namespace pushpull {
namespace {

class PayloadRingTest : public ::testing::Test {
 protected:
  std::vector<std::byte> ReadNext(size_t num_bytes) {
    std::vector<std::byte> payload(num_bytes);
    reader_.Read(num_bytes, payload);
    return payload;
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(kPayloadRingBytes);
  PayloadRingWriter writer_{memory_};
  PayloadRingReader reader_{memory_};
};

TEST_F(PayloadRingTest, PayloadsOfAnySizePassAndNeverBlockForever) {
  std::mt19937 random(1);
  std::uniform_int_distribution<size_t> any_size(1, kFramePayloadBytesMax);
  std::deque<std::vector<std::byte>> on_their_way;

  for (uint32_t i = 0; i < 100; ++i) {
    const size_t size = i % 3 == 0 ? kFramePayloadBytesMax : any_size(random);
    while (!writer_.Fits(size)) {
      ASSERT_FALSE(on_their_way.empty()) << "no room, although all has been read";
      ASSERT_TRUE(ReadNext(on_their_way.front().size()) == on_their_way.front());
      on_their_way.pop_front();
      ASSERT_TRUE(writer_.AddCredit(reader_.TakeCredit()).ok());
    }
    on_their_way.push_back(Pattern(size, i));
    writer_.Write(on_their_way.back());
  }
}

TEST_F(PayloadRingTest, ADroppedPayloadMakesRoomToo) {
  const std::vector<std::byte> payload = Pattern(kFramePayloadBytesMax);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(writer_.Fits(payload.size()));

    writer_.Write(payload);
    reader_.Read(payload.size(), {});

    ASSERT_TRUE(writer_.AddCredit(reader_.TakeCredit()).ok());
  }
}

TEST_F(PayloadRingTest, CreditForMoreThanWasWrittenIsRejected) {
  writer_.Write(Pattern(1000));

  const absl::Status why = writer_.AddCredit(2000);

  EXPECT_EQ(why.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(writer_.AddCredit(1000).ok());
}

TEST_F(PayloadRingTest, CreditForSmallPayloadsIsBatched) {
  const std::vector<std::byte> payload = Pattern(100);
  int num_credits = 0;

  for (int i = 0; i < 10000; ++i) {
    writer_.Write(payload);
    reader_.Read(payload.size(), {});
    const uint64_t credit = reader_.TakeCredit();
    if (credit > 0) ++num_credits;
    ASSERT_TRUE(writer_.AddCredit(credit).ok());
  }

  EXPECT_LE(num_credits, 2);
}

}  // namespace
}  // namespace pushpull
