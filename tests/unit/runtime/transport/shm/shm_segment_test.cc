// SPDX-License-Identifier: Apache-2.0
//
// Shared memory: ends that do not share it, strangers, peers that corrupt it or try to shorten it.
// What every transport does is in conformance_test.cc.
#include "runtime/transport/shm/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
using ::testing::StartsWith;

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
  // A raw peer whose hello says where it takes memory; returns the answer.
  absl::StatusOr<HelloAckMeta> Offer(RawPeer& peer, const ShmOffer& offer) {
    peer.SendHello(1, offer);
    absl::StatusOr<OutgoingFrame> ack = peer.ReceiveFrame();
    if (!ack.ok()) return ack.status();
    server_ = pair_->acceptor().WaitForChannel();
    EXPECT_NE(server_, nullptr);
    return DecodeHelloAck(ack->meta);
  }
  // The descriptor of the memory that the server has made for the peer.
  FileDescriptor MemoryFor(RawPeer& peer) {
    const DescriptorInbox inbox = *shm_.OpenInbox();
    const absl::StatusOr<HelloAckMeta> ack = Offer(peer, inbox.address());
    EXPECT_TRUE(ack.ok() && ack->shm_made.ok());
    return *inbox.Take();
  }
  ShmSegment SegmentFor(RawPeer& peer) { return *ShmSegment::Attach(MemoryFor(peer)); }
  // What becomes of a connection to a server that sends `memory`.
  absl::Status ConnectToServerWith(const FileDescriptor& memory) {
    Listen(&shm_, &shm_);
    RawListener liar;
    ConnectRequest request = pair_->Request();
    request.address = liar.address();
    std::thread answers([&] {
      RawPeer peer = liar.Accept();
      const absl::StatusOr<OutgoingFrame> hello = peer.ReceiveFrame();
      ASSERT_TRUE(hello.ok());
      const ShmOffer inbox = *DecodeHello(hello->meta)->shm;
      EXPECT_TRUE(!memory.is_open() || SendDescriptor(inbox, memory.get()).ok());
      peer.SendFrame({.type = FrameType::kHelloAck},
                     EncodeHelloAck({.lane_count = 1, .host = 1, .shm_proof = {1, 2}}));
      EXPECT_TRUE(peer.WaitForEnd());
    });
    const absl::Status why = pair_->Connect(request).status();
    answers.join();
    return why;
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

TEST_F(ShmTest, WhatOneEndWritesTheOtherReads) {
  const absl::StatusOr<ShmSegment::Made> made = ShmSegment::Make();
  ASSERT_TRUE(made.ok()) << made.status();
  const absl::StatusOr<ShmSegment> attached = ShmSegment::Attach(made->descriptor);
  ASSERT_TRUE(attached.ok()) << attached.status();

  made->segment.Outgoing(ShmSide::kAccepting)[17] = std::byte{1};
  attached->Outgoing(ShmSide::kConnecting)[18] = std::byte{2};

  EXPECT_EQ(attached->proof(), made->segment.proof());
  EXPECT_EQ(attached->Incoming(ShmSide::kConnecting)[17], std::byte{1});
  EXPECT_EQ(made->segment.Incoming(ShmSide::kAccepting)[18], std::byte{2});
}

TEST_F(ShmTest, OnlySealedMemoryOfTheRightSizeIsMapped) {
  const ShmSegment::Made made = *ShmSegment::Make();
  const off_t size = lseek(made.descriptor.get(), 0, SEEK_END);
  ASSERT_GT(size, 0);
  const FileDescriptor unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), size), 0);
  const FileDescriptor half(memfd_create("half", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(half.get(), size), 0);
  ASSERT_EQ(fcntl(half.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL), 0);
  const FileDescriptor shorter(memfd_create("shorter", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(shorter.get(), size - 4096), 0);
  ASSERT_EQ(fcntl(shorter.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  const FileDescriptor file(
      open(folder_.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
  ASSERT_EQ(ftruncate(file.get(), size), 0);
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe2(pipe_ends.data(), O_CLOEXEC), 0);
  const FileDescriptor pipe(pipe_ends[0]);
  const FileDescriptor other_end(pipe_ends[1]);

  for (const FileDescriptor* wrong : {&unsealed, &half, &shorter, &file, &pipe}) {
    const absl::Status why = ShmSegment::Attach(*wrong).status();
    EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument) << why;
  }
  EXPECT_TRUE(ShmSegment::Attach(made.descriptor).ok());
}

TEST_F(ShmTest, OnlyInboxesOfTheFolderAndTheJobGetMemory) {
  const TemporaryShmFolder other;
  const ShmFolder elsewhere(other.path(), "job", Log("test"));
  const ShmFolder strange(folder_.path(), "other", Log("test"));
  const DescriptorInbox inbox = *shm_.OpenInbox();
  const DescriptorInbox far = *elsewhere.OpenInbox();
  const DescriptorInbox foreign = *strange.OpenInbox();

  EXPECT_THAT(inbox.address().name, StartsWith("pushpull-job-"));
  EXPECT_TRUE(shm_.MakeFor(inbox.address()).ok());
  for (const std::string& name : {std::string(),
                                  std::string("x"),
                                  far.address().name,
                                  foreign.address().name,
                                  shm_.prefix() + "0123456789abcdef",
                                  shm_.prefix() + std::string(300, 'a')})
    EXPECT_FALSE(shm_.MakeFor({.name = name, .token = inbox.address().token}).ok()) << name;
}

TEST_F(ShmTest, AProcessMakesABoundedNumberOfSegments) {
  std::vector<ShmSegment> held;
  const auto make = [&] {
    const DescriptorInbox inbox = *shm_.OpenInbox();
    return shm_.MakeFor(inbox.address());
  };
  for (size_t i = 0; i < ShmFolder::kSegmentsMax; ++i) {
    absl::StatusOr<ShmSegment> made = make();
    ASSERT_TRUE(made.ok()) << made.status();
    held.push_back(*std::move(made));
  }

  EXPECT_EQ(make().status().code(), absl::StatusCode::kResourceExhausted);
  held.pop_back();
  EXPECT_TRUE(make().ok());
}

// ---- hostile peers ----

TEST_F(ShmTest, AnInboxThatIsNotThereIsDeclined) {
  Listen(&shm_, &shm_);
  RawPeer stranger = RawPeer::Connect(pair_->address());

  const absl::StatusOr<HelloAckMeta> ack =
      Offer(stranger, {.name = shm_.prefix() + "0123456789abcdef", .token = {}});

  ASSERT_TRUE(ack.ok()) << ack.status();
  EXPECT_FALSE(ack->shm_made.ok());
  EXPECT_EQ(ack->shm_proof, ShmToken{});
  EXPECT_EQ(server_->channel->kind(), "tcp");
}

TEST_F(ShmTest, APeerCannotShortenTheMemory) {
  Listen(&shm_, &shm_);
  RawPeer peer = RawPeer::Connect(pair_->address());
  const FileDescriptor memory = MemoryFor(peer);

  const int shortened = ftruncate(memory.get(), 0);
  const int grown = ftruncate(memory.get(), off_t{1} << 30);
  peer.SendFrame({.type = FrameType::kPush, .payload_bytes = 1000}, {}, {});

  EXPECT_EQ(shortened, -1);
  EXPECT_EQ(grown, -1);
  EXPECT_TRUE(server_->recorder->WaitForFrames(1));
}

TEST_F(ShmTest, AHoleInTheMemoryReadsAsZeros) {
  Listen(&shm_, &shm_);
  RawPeer peer = RawPeer::Connect(pair_->address());
  const FileDescriptor memory = MemoryFor(peer);
  const ShmSegment segment = *ShmSegment::Attach(memory);
  std::ranges::fill(segment.Outgoing(ShmSide::kConnecting), std::byte{0xff});

  const int punched = fallocate(memory.get(),
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                0,
                                lseek(memory.get(), 0, SEEK_END));
  peer.SendFrame({.type = FrameType::kPush, .payload_bytes = 1000}, {}, {});

  EXPECT_EQ(punched, 0);
  ASSERT_TRUE(server_->recorder->WaitForFrames(1));
  EXPECT_EQ(server_->recorder->frames().front().payload, std::vector<std::byte>(1000));
}

TEST_F(ShmTest, GarbageInTheMemoryCorruptsOnlyPayloads) {
  Listen(&shm_, &shm_);
  RawPeer peer = RawPeer::Connect(pair_->address());
  const ShmSegment segment = SegmentFor(peer);

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
  RawPeer peer = RawPeer::Connect(pair_->address());
  const ShmSegment segment = SegmentFor(peer);
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
  RawPeer peer = RawPeer::Connect(pair_->address());
  const ShmSegment segment = SegmentFor(peer);

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
    RawPeer peer = RawPeer::Connect(pair_->address());
    const ShmSegment segment = SegmentFor(peer);
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

TEST_F(ShmTest, AServerThatSendsNoMemoryOrAnotherIsLeft) {
  const ShmSegment::Made made = *ShmSegment::Make();
  const FileDescriptor unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), lseek(made.descriptor.get(), 0, SEEK_END)), 0);
  const FileDescriptor none;

  EXPECT_EQ(ConnectToServerWith(none).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ConnectToServerWith(unsealed).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ConnectToServerWith(made.descriptor).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace pushpull
