// SPDX-License-Identifier: Apache-2.0
//
// Shared memory: ends that do not share it, strangers in the folder, peers that corrupt it or die.
// What every transport does is in conformance_test.cc.
#include "runtime/transport/shm/shm_segment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/wire_bytes.h"
#include "runtime/transport/channel_choice.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/shm/shared_memory.h"
#include "runtime/transport/shm/shared_regions.h"
#include "tests/unit/runtime/transport/channel_rig.h"
#include "tests/unit/runtime/transport/raw_peer.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ShmTest : public ::testing::Test {
 protected:
  void Listen(const ShmFolder* client, const ShmFolder* server, uint64_t server_host = 1) {
    pair_ = std::make_unique<ChannelPair>(
        MakeTcpRig({.host = 1, .shm = client}, {.host = server_host, .shm = server}));
    pair_->Listen();
  }
  // Connects, sends a payload each way and returns the kinds of both ends.
  std::string KindThatWorks() {
    // Static: the peer may have it before the sender's thread has finished reading it.
    static const std::vector<std::byte> payload = Pattern(100'000);
    pair_->ConnectBoth();
    for (const bool is_client : {true, false}) {
      RecordedChannel& from = is_client ? pair_->client() : pair_->server();
      RecordedChannel& to = is_client ? pair_->server() : pair_->client();
      SendOne(from, PushFrame(1, payload));
      EXPECT_TRUE(to.recorder->WaitForFrames(1));
      EXPECT_TRUE(to.recorder->frames().front().payload == payload);
    }
    EXPECT_EQ(pair_->client().channel->kind(), pair_->server().channel->kind());
    return std::string(pair_->client().channel->kind());
  }
  // A raw peer that offers `segment`; returns the answer to the offer.
  absl::StatusOr<HelloAckMeta> Offer(RawPeer& peer, const ShmOffer& offer) {
    peer.SendHello(1, offer);
    absl::StatusOr<OutgoingFrame> ack = peer.ReceiveFrame();
    if (!ack.ok()) return ack.status();
    server_ = pair_->acceptor().WaitForChannel();
    EXPECT_NE(server_, nullptr);
    return DecodeHelloAck(ack->meta);
  }
  // Returns when the server has it: what is sent afterwards refers to it.
  void ShareWithServer(const std::shared_ptr<SharedMemory>& memory) {
    static const std::vector<std::byte> payload = Pattern(100);
    RecordedChannel& from = pair_->client();
    ASSERT_TRUE(RunOn(*from.executor, [&] { from.channel->Share(memory, nullptr); }));
    // Offer, inbox, descriptor and answer: a frame there and back, twice.
    for (size_t i = 1; i <= 3; ++i) {
      SendOne(pair_->client(), PushFrame(100 + i, payload));
      ASSERT_TRUE(pair_->server().recorder->WaitForFrames(i));
      SendOne(pair_->server(), PushFrame(100 + i, payload));
      ASSERT_TRUE(pair_->client().recorder->WaitForFrames(i));
    }
  }
  ShmSegment MakeSegment() { return *ShmSegment::Create(folder_.path(), "job"); }
  std::string PathOf(const std::string& name) const { return folder_.path() + "/" + name; }
  void TearDown() override {
    if (server_ != nullptr) ChannelPair::Drop(*server_);
  }

  const TemporaryShmFolder folder_;
  const ShmFolder shm_{folder_.path(), "job", Log("test")};
  std::unique_ptr<ChannelPair> pair_;
  std::shared_ptr<RecordedChannel> server_;
};

// ---- whether to use it ----

TEST_F(ShmTest, TwoEndsUseOneFolderAndLeaveItEmpty) {
  Listen(&shm_, &shm_);

  EXPECT_EQ(KindThatWorks(), "shm");
  EXPECT_THAT(folder_.names(), IsEmpty());
}

TEST_F(ShmTest, EndsInTwoFoldersUseTheSocket) {
  const TemporaryShmFolder other;
  const ShmFolder elsewhere(other.path(), "job", Log("test"));
  Listen(&shm_, &elsewhere);

  EXPECT_EQ(KindThatWorks(), "tcp");
  EXPECT_THAT(folder_.names(), IsEmpty());
}

TEST_F(ShmTest, AnEndWithoutShmUsesTheSocket) {
  Listen(&shm_, nullptr);
  EXPECT_EQ(KindThatWorks(), "tcp");
  Listen(nullptr, &shm_);
  EXPECT_EQ(KindThatWorks(), "tcp");
}

TEST_F(ShmTest, AFolderThatTwoHostsShareIsNoSharedMemory) {
  Listen(&shm_, &shm_, 2);

  EXPECT_EQ(KindThatWorks(), "tcp");
}

TEST_F(ShmTest, FallsBackToTheSocketAndWarnsOnce) {
  const ShmFolder missing(folder_.path() + "/missing", "job", Log("test"));
  ::testing::internal::CaptureStderr();
  Listen(&missing, &shm_);

  EXPECT_EQ(KindThatWorks(), "tcp");
  EXPECT_EQ(KindThatWorks(), "tcp");

  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("/missing"));
  EXPECT_THAT(log, HasSubstr(kShmFolderVariable));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

// ---- segments ----

TEST_F(ShmTest, ASegmentIsPrivateAndNamesTheJob) {
  const ShmSegment segment = MakeSegment();

  ASSERT_THAT(folder_.names(), SizeIs(1));
  EXPECT_EQ(folder_.names().front(), segment.offer().name);
  EXPECT_THAT(segment.offer().name, ::testing::StartsWith("pushpull-job-"));
  struct stat found {};
  ASSERT_EQ(stat(PathOf(segment.offer().name).c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
}

TEST_F(ShmTest, WhatOneEndWritesTheOtherReads) {
  const ShmSegment made = MakeSegment();
  const absl::StatusOr<ShmSegment> attached = ShmSegment::Attach(folder_.path(), made.offer());
  ASSERT_TRUE(attached.ok()) << attached.status();

  made.Outgoing(ShmSide::kConnecting)[17] = std::byte{1};
  attached->Outgoing(ShmSide::kAccepting)[18] = std::byte{2};

  EXPECT_EQ(attached->proof(), made.proof());
  EXPECT_EQ(attached->Incoming(ShmSide::kAccepting)[17], std::byte{1});
  EXPECT_EQ(made.Incoming(ShmSide::kConnecting)[18], std::byte{2});
  EXPECT_THAT(folder_.names(), IsEmpty());
}

TEST_F(ShmTest, AttachWithAWrongTokenFailsAndKeepsTheName) {
  const ShmSegment segment = MakeSegment();
  ShmOffer offer = segment.offer();
  ++offer.token[1];

  const absl::Status why = ShmSegment::Attach(folder_.path(), offer).status();

  EXPECT_EQ(why.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(folder_.names(), SizeIs(1));
}

TEST_F(ShmTest, OnlySegmentsOfTheFolderAreOpened) {
  const ShmSegment segment = MakeSegment();
  const std::string link = "pushpull-job-0123456789abcdef";
  ASSERT_EQ(symlink(segment.offer().name.c_str(), PathOf(link).c_str()), 0);

  for (const std::string& name : {std::string(),
                                  std::string("x"),
                                  std::string("pushpull-job-"),
                                  "../" + segment.offer().name,
                                  "pushpull-/../" + segment.offer().name,
                                  std::string(300, 'a'),
                                  link}) {
    const ShmOffer offer{.name = name, .token = segment.offer().token};
    EXPECT_FALSE(ShmSegment::Attach(folder_.path(), offer).ok()) << name;
  }
}

TEST_F(ShmTest, AFileThatWouldKillItsReaderIsRejected) {
  const std::string name = "pushpull-job-0123456789abcdef";
  ASSERT_EQ(mkfifo(PathOf(name).c_str(), 0600), 0);
  EXPECT_FALSE(ShmSegment::Attach(folder_.path(), {.name = name}).ok());
  ASSERT_EQ(unlink(PathOf(name).c_str()), 0);

  std::ofstream(PathOf(name)) << "short";
  EXPECT_FALSE(ShmSegment::Attach(folder_.path(), {.name = name}).ok());

  // Of the right length, with no memory behind it.
  struct stat whole {};
  const ShmSegment segment = MakeSegment();
  ASSERT_EQ(stat(PathOf(segment.offer().name).c_str(), &whole), 0);
  ASSERT_EQ(truncate(PathOf(name).c_str(), whole.st_size), 0);
  EXPECT_FALSE(ShmSegment::Attach(folder_.path(), {.name = name}).ok());
}

TEST_F(ShmTest, SweepsOnlySegmentsOfDeadProcesses) {
  const ShmSegment in_use = MakeSegment();
  std::ofstream(PathOf("somebody-elses")) << "x";
  const pid_t child = fork();
  if (child == 0) {
    const ShmSegment left = MakeSegment();
    raise(SIGKILL);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_THAT(folder_.names(), SizeIs(3));

  const ShmFolder next(folder_.path(), "job", Log("test"));

  EXPECT_THAT(folder_.names(),
              ::testing::UnorderedElementsAre(in_use.offer().name, "somebody-elses"));
}

// ---- hostile peers ----

TEST_F(ShmTest, AnOfferOfAForeignSegmentIsDeclined) {
  Listen(&shm_, &shm_);
  const ShmSegment segment = MakeSegment();
  RawPeer stranger = RawPeer::Connect(pair_->address());

  const absl::StatusOr<HelloAckMeta> ack =
      Offer(stranger, {.name = segment.offer().name, .token = {}});

  ASSERT_TRUE(ack.ok()) << ack.status();
  EXPECT_EQ(ack->shm_attached.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(ack->shm_proof, segment.proof());
  EXPECT_EQ(server_->channel->kind(), "tcp");
}

TEST_F(ShmTest, GarbageInTheMemoryCorruptsOnlyPayloads) {
  Listen(&shm_, &shm_);
  const ShmSegment segment = MakeSegment();
  RawPeer peer = RawPeer::Connect(pair_->address());
  ASSERT_TRUE(Offer(peer, segment.offer())->shm_attached.ok());

  std::ranges::fill(segment.Outgoing(ShmSide::kConnecting), std::byte{0xff});
  std::ranges::fill(segment.Incoming(ShmSide::kConnecting), std::byte{0xff});
  constexpr uint32_t kOdd = 999'999;
  for (uint32_t i = 0; i < 20; ++i)
    peer.SendFrame({.type = FrameType::kPush, .payload_bytes = kOdd}, {}, {});

  ASSERT_TRUE(server_->recorder->WaitForFrames(20));
  EXPECT_TRUE(server_->recorder->frames().back().payload ==
              std::vector<std::byte>(kOdd, std::byte{0xff}));
}

TEST_F(ShmTest, AChangedPayloadFailsItsChecksum) {
  Listen(&shm_, &shm_);
  const ShmSegment segment = MakeSegment();
  RawPeer peer = RawPeer::Connect(pair_->address());
  ASSERT_TRUE(Offer(peer, segment.offer())->shm_attached.ok());
  const std::vector<std::byte> payload = Pattern(1000);
  std::ranges::copy(payload, segment.Outgoing(ShmSide::kConnecting).begin());
  segment.Outgoing(ShmSide::kConnecting)[500] ^= std::byte{1};

  peer.SendFrame({.type = FrameType::kPush,
                  .flags = kFlagPayloadChecksum,
                  .payload_bytes = 1000,
                  .payload_checksum = ChecksumPayload(payload)},
                 {},
                 {});

  ASSERT_TRUE(server_->recorder->WaitForClosed());
  EXPECT_EQ(server_->recorder->closed()->code(), absl::StatusCode::kDataLoss);
}

TEST_F(ShmTest, UnexpectedCreditEndsTheChannel) {
  ByteWriter meta;
  meta.Put(uint64_t{1} << 40);
  const std::vector<std::byte> credit = meta.Take();
  Listen(&shm_, &shm_);
  const ShmSegment segment = MakeSegment();
  RawPeer peer = RawPeer::Connect(pair_->address());
  ASSERT_TRUE(Offer(peer, segment.offer())->shm_attached.ok());

  peer.SendFrame({.type = FrameType::kCredit}, credit);

  ASSERT_TRUE(server_->recorder->WaitForClosed());
  EXPECT_EQ(server_->recorder->closed()->code(), absl::StatusCode::kDataLoss);
}

TEST_F(ShmTest, CreditWithoutSharedMemoryEndsTheChannel) {
  Listen(nullptr, nullptr);
  pair_->ConnectBoth();

  SendOne(pair_->client(), {.header = {.type = FrameType::kCredit}, .meta = {}, .payload = {}});

  ASSERT_TRUE(pair_->server().recorder->WaitForClosed());
  EXPECT_EQ(pair_->server().recorder->closed()->code(), absl::StatusCode::kDataLoss);
}

// ---- registered memory ----

TEST_F(ShmTest, APayloadCanStayInSharedMemory) {
  for (const PayloadChecksums checksums : {PayloadChecksums::kOff, PayloadChecksums::kOn}) {
    pair_ = std::make_unique<ChannelPair>(
        MakeTcpRig({.payload_checksums = checksums, .host = 1, .shm = &shm_},
                   {.payload_checksums = checksums, .host = 1, .shm = &shm_}));
    pair_->acceptor().prepare = [](FrameRecorder& recorder) { recorder.takes_in_place = true; };
    pair_->Listen();
    pair_->ConnectBoth();
    const auto memory = *SharedMemory::Create("pushpull-test", 1 << 20);
    std::ranges::copy(Pattern(memory->bytes().size()), memory->bytes().begin());
    ShareWithServer(memory);

    // A payload that is not settled is copied, wherever it lies.
    OutgoingFrame copied = PushFrame(1, memory->bytes());
    OutgoingFrame settled = PushFrame(2, memory->bytes());
    settled.payload.is_settled = true;
    SendOne(pair_->client(), std::move(copied));
    SendOne(pair_->client(), std::move(settled));

    ASSERT_TRUE(pair_->server().recorder->WaitForFrames(5));
    std::vector<RecordedFrame> frames = pair_->server().recorder->frames();
    frames.erase(frames.begin(), frames.begin() + 3);
    EXPECT_TRUE(std::ranges::equal(frames[0].payload, memory->bytes()));
    EXPECT_THAT(frames[0].in_place.bytes, IsEmpty());
    EXPECT_THAT(frames[1].payload, IsEmpty());
    EXPECT_TRUE(std::ranges::equal(frames[1].in_place.bytes, memory->bytes()));
    // It lies in the peer's memory: later writes there are visible.
    memory->bytes()[5] ^= std::byte{1};
    EXPECT_EQ(frames[1].in_place.bytes[5], memory->bytes()[5]);
  }
  EXPECT_THAT(folder_.names(), IsEmpty());
}

TEST_F(ShmTest, AReferenceToUnknownMemoryEndsTheChannel) {
  struct Wrong {
    uint64_t region;
    uint64_t offset;
  };
  for (const Wrong& wrong : {Wrong{0, 0}, Wrong{1, 0}, Wrong{uint64_t{1} << 63, 12}}) {
    Listen(&shm_, &shm_);
    const ShmSegment segment = MakeSegment();
    RawPeer peer = RawPeer::Connect(pair_->address());
    ASSERT_TRUE(Offer(peer, segment.offer())->shm_attached.ok());
    std::vector<std::byte> meta;
    AppendPlace({wrong.region, wrong.offset}, meta);

    peer.SendFrame(
        {.type = FrameType::kPush, .flags = kFlagInRegion, .payload_bytes = 1000}, meta, {});

    ASSERT_TRUE(server_->recorder->WaitForClosed());
    EXPECT_EQ(server_->recorder->closed()->code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(server_->recorder->closed()->message(), HasSubstr("refers to"));
    ChannelPair::Drop(*std::exchange(server_, nullptr));
  }
}

TEST_F(ShmTest, AReferenceOverASocketEndsTheChannel) {
  Listen(nullptr, nullptr);
  RawPeer peer = RawPeer::Connect(pair_->address());
  ASSERT_TRUE(Offer(peer, {})->lane_count > 0);
  std::vector<std::byte> meta;
  AppendPlace({}, meta);

  peer.SendFrame(
      {.type = FrameType::kPush, .flags = kFlagInRegion, .payload_bytes = 1000}, meta, {});

  ASSERT_TRUE(server_->recorder->WaitForClosed());
  EXPECT_EQ(server_->recorder->closed()->code(), absl::StatusCode::kDataLoss);
}

TEST_F(ShmTest, AMalformedRegionMessageEndsTheChannel) {
  for (const ShmFolder* folder : {&shm_, static_cast<const ShmFolder*>(nullptr)}) {
    Listen(folder, folder);
    pair_->ConnectBoth();

    SendOne(pair_->client(), {.header = {.type = FrameType::kRegion}, .meta = {}, .payload = {}});

    ASSERT_TRUE(pair_->server().recorder->WaitForClosed());
    EXPECT_EQ(pair_->server().recorder->closed()->code(), absl::StatusCode::kDataLoss);
  }
}

TEST_F(ShmTest, AServerThatLiesAboutItsMemoryIsLeft) {
  Listen(&shm_, &shm_);
  RawListener liar;
  ConnectRequest request = pair_->Request();
  request.address = liar.address();
  std::thread answers([&] {
    RawPeer peer = liar.Accept();
    EXPECT_TRUE(peer.ReceiveFrame().ok());
    peer.SendFrame({.type = FrameType::kHelloAck},
                   EncodeHelloAck({.lane_count = 1, .host = 1, .shm_proof = {1, 2}}));
    EXPECT_TRUE(peer.WaitForEnd());
  });

  const absl::Status why = pair_->Connect(request).status();

  answers.join();
  EXPECT_EQ(why.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(folder_.names(), IsEmpty());
}

}  // namespace
}  // namespace pushpull
