// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shm/shared_regions.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/wire_bytes.h"
#include "tests/unit/runtime/transport/channel_rig.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr size_t kBytes = 100'000;

std::shared_ptr<SharedMemory> Make(size_t num_bytes = kBytes) {
  return *SharedMemory::Create("pushpull-job", num_bytes);
}

// Another descriptor of the same memory, as a neighbour gets it.
FileDescriptor Received(int descriptor) {
  return FileDescriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
}

// Memory of the right size that is not sealed.
FileDescriptor Unsealed(size_t num_bytes) {
  FileDescriptor file(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(posix_fallocate(file.get(), 0, static_cast<off_t>(num_bytes)), 0);
  return file;
}

// ---- memory ----

TEST(SharedMemoryTest, ANeighbourReadsWhatTheOwnerWrites) {
  const std::shared_ptr<SharedMemory> made = Make();
  const auto attached = AttachedMemory::Attach(Received(made->descriptor()), kBytes);
  ASSERT_TRUE(attached.ok()) << attached.status();

  made->bytes()[kBytes - 1] = std::byte{7};

  ASSERT_THAT((*attached)->bytes(), SizeIs(kBytes));
  EXPECT_EQ((*attached)->bytes()[kBytes - 1], std::byte{7});
  EXPECT_EQ((*attached)->bytes()[0], std::byte{0});
}

TEST(SharedMemoryTest, ANeighbourCanNeitherWriteNorRemovePages) {
  const std::shared_ptr<SharedMemory> made = Make();
  const FileDescriptor theirs = Received(made->descriptor());

  EXPECT_EQ(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, theirs.get(), 0), MAP_FAILED);
  EXPECT_EQ(pwrite(theirs.get(), "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(theirs.get(), 0), -1);
  EXPECT_EQ(fallocate(theirs.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  // Nor can its owner: a reader would die of SIGBUS.
  EXPECT_EQ(madvise(made->bytes().data(), 4096, MADV_REMOVE), -1);
}

TEST(SharedMemoryTest, MemoryThatWouldKillItsReaderIsRejected) {
  const std::shared_ptr<SharedMemory> made = Make();
  const auto attach = [](const FileDescriptor& file, size_t num_bytes) {
    return AttachedMemory::Attach(file, num_bytes).status().code();
  };

  EXPECT_EQ(attach(Received(made->descriptor()), kBytes + 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(attach(Received(made->descriptor()), 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(attach(Unsealed(kBytes), kBytes), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(attach(FileDescriptor(open("/dev/zero", O_RDONLY | O_CLOEXEC)), kBytes),
            absl::StatusCode::kInvalidArgument);
}

TEST(SharedMemoryTest, MemoryWithoutPagesIsRejected) {
  const FileDescriptor file(memfd_create("holes", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
  ASSERT_EQ(
      fcntl(
          file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL),
      0);

  EXPECT_EQ(AttachedMemory::Attach(file, kBytes).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SharedMemoryTest, MoreThanTheHostHasIsRejected) {
  EXPECT_FALSE(SharedMemory::Create("pushpull-job", size_t{1} << 62).ok());
}

// ---- descriptors ----

TEST(DescriptorInboxTest, OnlyASenderWithTheTokenDelivers) {
  const DescriptorInbox inbox = *DescriptorInbox::Open("pushpull-job-");
  const std::shared_ptr<SharedMemory> made = Make();
  EXPECT_EQ(inbox.Take().status().code(), absl::StatusCode::kNotFound);
  ShmOffer wrong = inbox.address();
  ++wrong.token[0];
  ASSERT_TRUE(SendDescriptor(wrong, made->descriptor()).ok());
  EXPECT_EQ(inbox.Take().status().code(), absl::StatusCode::kNotFound);

  ASSERT_TRUE(SendDescriptor(wrong, made->descriptor()).ok());
  ASSERT_TRUE(SendDescriptor(inbox.address(), made->descriptor()).ok());

  const absl::StatusOr<FileDescriptor> taken = inbox.Take();
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_TRUE(AttachedMemory::Attach(*taken, kBytes).ok());
}

TEST(DescriptorInboxTest, InvalidNamesAreErrors) {
  const std::shared_ptr<SharedMemory> made = Make();
  for (const std::string& name : {std::string(), std::string("nobody"), std::string(200, 'a')})
    EXPECT_FALSE(SendDescriptor({.name = name}, made->descriptor()).ok()) << name;
  EXPECT_FALSE(DescriptorInbox::Open(std::string(200, 'a')).ok());
}

// ---- regions ----

std::vector<std::byte> Message(uint8_t kind, uint64_t region, uint64_t num_bytes = 0) {
  ByteWriter writer;
  writer.Put(kind);
  writer.Put(region);
  writer.Put(num_bytes);
  return writer.Take();
}

class SharedRegionsTest : public ::testing::Test {
 protected:
  // All messages between the ends.
  void Talk(std::vector<std::byte> message) {
    for (SharedRegions* to = &reader_; !message.empty(); to = to == &reader_ ? &owner_ : &reader_) {
      absl::StatusOr<std::vector<std::byte>> answer = to->Answer(message);
      ASSERT_TRUE(answer.ok()) << answer.status();
      message = *std::move(answer);
    }
  }
  void ShareWithReader(const std::shared_ptr<SharedMemory>& memory) {
    Talk(owner_.Offer(memory, [this](const absl::Status& why) { refused_ = why; }));
  }
  absl::StatusCode Resolve(uint64_t region, uint64_t offset, size_t num_bytes) {
    return reader_.Resolve({region, offset}, num_bytes).status().code();
  }

  SharedRegions owner_{"pushpull-job-"};
  SharedRegions reader_{"pushpull-job-"};
  absl::Status refused_;
};

TEST_F(SharedRegionsTest, APayloadIsFoundWhereItLies) {
  const std::vector<std::shared_ptr<SharedMemory>> regions = {Make(), Make(4096), Make()};
  for (const auto& memory : regions) ShareWithReader(memory);

  for (const auto& memory : regions) {
    const std::span<std::byte> payload = memory->bytes().subspan(64, 1000);
    payload[999] = std::byte{42};
    const std::optional<RegionPlace> place = owner_.Find(payload);
    ASSERT_TRUE(place);

    const absl::StatusOr<Payload> found = reader_.Resolve(*place, payload.size());

    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_THAT(found->bytes, SizeIs(1000));
    EXPECT_EQ(found->bytes[999], std::byte{42});
    EXPECT_NE(found->bytes.data(), payload.data());
  }
}

TEST_F(SharedRegionsTest, FindsNoPlaceForOtherMemory) {
  const std::shared_ptr<SharedMemory> memory = Make();
  const std::shared_ptr<SharedMemory> offered = Make();
  const std::shared_ptr<SharedMemory> never = Make();
  ShareWithReader(memory);
  static_cast<void>(owner_.Offer(offered, nullptr));
  const std::vector<std::byte> own(1000);

  EXPECT_FALSE(owner_.Find({}));
  EXPECT_FALSE(owner_.Find(own));
  EXPECT_FALSE(owner_.Find(offered->bytes()));
  EXPECT_FALSE(owner_.Find(never->bytes()));
  // Not at a number's place.
  EXPECT_FALSE(owner_.Find(memory->bytes().subspan(1, 8)));
  EXPECT_TRUE(owner_.Find(memory->bytes()));
}

TEST_F(SharedRegionsTest, APayloadKeepsItsMemoryMapped) {
  Payload held;
  {
    SharedRegions reader("pushpull-job-");
    std::vector<std::byte> message = owner_.Offer(Make(), nullptr);
    for (SharedRegions* to = &reader; !message.empty(); to = to == &reader ? &owner_ : &reader)
      message = *to->Answer(message);
    held = *reader.Resolve({0, 0}, kBytes);
  }

  EXPECT_EQ(held.bytes[kBytes - 1], std::byte{0});
}

TEST_F(SharedRegionsTest, AReferenceOutsideTheRegionsIsAnError) {
  ShareWithReader(Make());
  static_cast<void>(reader_.Answer(Message(1, 1, kBytes)));  // offered, not there yet
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

  EXPECT_EQ(Resolve(0, 0, kBytes), absl::StatusCode::kOk);
  EXPECT_EQ(Resolve(0, kBytes - 4, 4), absl::StatusCode::kOk);
  EXPECT_EQ(Resolve(0, 0, kBytes + 1), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Resolve(0, 4, kBytes), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Resolve(0, kBytes, 1), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Resolve(0, kMost - 3, 8), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Resolve(0, kMost - 1023, 1024), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Resolve(0, 2, 4), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Resolve(1, 0, 4), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Resolve(2, 0, 4), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Resolve(kMost, 0, 4), absl::StatusCode::kDataLoss);
}

TEST_F(SharedRegionsTest, MemoryUnlikeItsOfferIsRejectedAndCopied) {
  // The inbox's name and token, for a region that is said to have other bytes than it has.
  SharedRegions liar("pushpull-job-");
  static_cast<void>(liar.Offer(Make(), [this](const absl::Status& why) { refused_ = why; }));

  std::vector<std::byte> message = Message(1, 0, kBytes + 4096);
  for (SharedRegions* to = &reader_; !message.empty(); to = to == &reader_ ? &liar : &reader_) {
    absl::StatusOr<std::vector<std::byte>> answer = to->Answer(message);
    ASSERT_TRUE(answer.ok()) << answer.status();
    message = *std::move(answer);
  }

  EXPECT_EQ(refused_.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Resolve(0, 0, 4), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(liar.Find(std::span<const std::byte>()));
}

TEST_F(SharedRegionsTest, UnexpectedMessagesEndTheConnection) {
  static_cast<void>(owner_.Offer(Make(), nullptr));
  ASSERT_TRUE(reader_.Answer(Message(1, 0, kBytes)).ok());

  const std::vector<std::vector<std::byte>> wrong = {
      {}, Message(0, 0), Message(9, 0), Message(1, 0, kBytes), Message(3, 5), Message(4, 7)};
  for (const std::vector<std::byte>& message : wrong) {
    const absl::Status why = reader_.Answer(message).status();
    EXPECT_EQ(why.code(), absl::StatusCode::kDataLoss) << message.size();
  }
  // A second descriptor, and the answer to a region that has one.
  ASSERT_TRUE(reader_.Answer(Message(3, 0)).ok());
  EXPECT_EQ(reader_.Answer(Message(3, 0)).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SharedRegionsTest, RejectsMoreRegionsThanTheLimit) {
  ShareWithReader(Make());
  std::vector<std::byte> last;
  // Inboxes take descriptors until their own comes; those that never come are few.
  for (uint64_t i = 1; i <= SharedRegions::kWaitingMax + 1; ++i)
    last = *reader_.Answer(Message(1, i, kBytes));

  ByteReader answer(last);
  EXPECT_EQ(answer.Get<uint8_t>(), 4);
  EXPECT_EQ(answer.Get<uint64_t>(), SharedRegions::kWaitingMax + 1);
  EXPECT_EQ(answer.GetStatus().code(), absl::StatusCode::kResourceExhausted);
}

TEST(RegionPlaceTest, IsTheEndOfAMeta) {
  std::vector<std::byte> meta = Pattern(10);
  AppendPlace({.region = 3, .offset = 1 << 20}, meta);
  ASSERT_THAT(meta, SizeIs(10 + kRegionPlaceBytes));

  const absl::StatusOr<RegionPlace> place = TakePlace(meta);

  ASSERT_TRUE(place.ok());
  EXPECT_EQ(*place, (RegionPlace{.region = 3, .offset = 1 << 20}));
  EXPECT_EQ(meta, Pattern(10));
  EXPECT_THAT(TakePlace(meta).status().message(), HasSubstr("without a place"));
}

}  // namespace
}  // namespace pushpull
