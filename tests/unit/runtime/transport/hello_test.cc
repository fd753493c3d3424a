// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/hello.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

HelloMeta SampleHello() {
  return {
      .hello = {.job = "mnist", .worker = WorkerId{7}, .incarnation = Incarnation{9}, .lane = 3},
      .host = 0x1122334455667788,
      .payload_checksums = PayloadChecksums::kOn,
      .shm = ShmOffer{.name = "pushpull-mnist-1", .token = {12, 13}}};
}

TEST(HelloTest, EveryFieldIsReadBack) {
  const absl::StatusOr<HelloMeta> decoded = DecodeHello(EncodeHello(SampleHello()));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->hello.job, "mnist");
  EXPECT_EQ(decoded->hello.worker, WorkerId{7});
  EXPECT_EQ(decoded->hello.incarnation, Incarnation{9});
  EXPECT_EQ(decoded->hello.lane, 3U);
  EXPECT_EQ(decoded->hello.server, std::nullopt);
  EXPECT_EQ(decoded->host, 0x1122334455667788U);
  EXPECT_EQ(decoded->payload_checksums, PayloadChecksums::kOn);
  ASSERT_TRUE(decoded->shm);
  EXPECT_EQ(decoded->shm->name, "pushpull-mnist-1");
  EXPECT_EQ(decoded->shm->token, (ShmToken{12, 13}));
}

TEST(HelloTest, ReadsBackAHelloWithoutMemory) {
  HelloMeta sample = SampleHello();
  sample.shm.reset();

  const absl::StatusOr<HelloMeta> decoded = DecodeHello(EncodeHello(sample));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_FALSE(decoded->shm);
}

TEST(HelloTest, ReadsBackTheServerId) {
  HelloMeta sample = SampleHello();
  sample.hello.server = ServerId{5};

  const absl::StatusOr<HelloMeta> decoded = DecodeHello(EncodeHello(sample));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->hello.server, ServerId{5});
  EXPECT_EQ(PeerName(decoded->hello), "server-5");
}

TEST(HelloTest, RejectsEveryTruncation) {
  const std::vector<std::byte> whole = EncodeHello(SampleHello());
  for (size_t length = 0; length < whole.size(); ++length) {
    const absl::StatusOr<HelloMeta> decoded = DecodeHello(std::span(whole).first(length));

    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss) << length;
  }
}

TEST(HelloTest, RejectsAnUnknownChecksumMode) {
  HelloMeta sample = SampleHello();
  sample.payload_checksums = static_cast<PayloadChecksums>(3);
  const std::vector<std::byte> meta = EncodeHello(sample);

  EXPECT_EQ(DecodeHello(meta).status().code(), absl::StatusCode::kDataLoss);
}

TEST(HelloAckTest, EveryFieldIsReadBack) {
  const HelloAckMeta ack{.admitted = absl::PermissionDeniedError("server-1 serves job \"a\""),
                         .lane_count = 2,
                         .host = 5,
                         .has_payload_checksums = true,
                         .hello_sent_at = -6,
                         .hello_received_at = 7};

  const absl::StatusOr<HelloAckMeta> decoded = DecodeHelloAck(EncodeHelloAck(ack));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->admitted, ack.admitted);
  EXPECT_EQ(decoded->lane_count, 2U);
  EXPECT_EQ(decoded->host, 5U);
  EXPECT_TRUE(decoded->has_payload_checksums);
  EXPECT_EQ(decoded->hello_sent_at, -6);
  EXPECT_EQ(decoded->hello_received_at, 7);
}

TEST(HelloAckTest, RejectsEveryTruncation) {
  const std::vector<std::byte> whole = EncodeHelloAck({});
  for (size_t length = 0; length < whole.size(); ++length) {
    const absl::StatusOr<HelloAckMeta> decoded = DecodeHelloAck(std::span(whole).first(length));

    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss) << length;
  }
}

TEST(PayloadChecksumsTest, AreOnBetweenHostsByDefault) {
  using enum PayloadChecksums;
  constexpr bool kSameHost = true;

  EXPECT_TRUE(AgreeOnPayloadChecksums(kAuto, kAuto, !kSameHost));
  EXPECT_FALSE(AgreeOnPayloadChecksums(kAuto, kAuto, kSameHost));
  EXPECT_FALSE(AgreeOnPayloadChecksums(kOff, kAuto, !kSameHost));
  EXPECT_FALSE(AgreeOnPayloadChecksums(kAuto, kOff, !kSameHost));
  EXPECT_TRUE(AgreeOnPayloadChecksums(kOn, kOff, kSameHost));
  EXPECT_TRUE(AgreeOnPayloadChecksums(kOff, kOn, kSameHost));
}

TEST(PayloadChecksumsTest, FollowTheEnvironment) {
  const auto of = [](const char* text) {
    return PayloadChecksumsFrom({{"PUSHPULL_PAYLOAD_CHECKSUM", text}});
  };

  EXPECT_EQ(*PayloadChecksumsFrom({}), PayloadChecksums::kAuto);
  EXPECT_EQ(*of("auto"), PayloadChecksums::kAuto);
  EXPECT_EQ(*of("on"), PayloadChecksums::kOn);
  EXPECT_EQ(*of("off"), PayloadChecksums::kOff);
  EXPECT_EQ(of("yes").status().message(),
            "PUSHPULL_PAYLOAD_CHECKSUM: must be auto, on or off, is \"yes\"");
}

TEST(HostIdentityTest, IsTheSameInOneProcess) {
  EXPECT_EQ(HostIdentity(), HostIdentity());
}

}  // namespace
}  // namespace pushpull
