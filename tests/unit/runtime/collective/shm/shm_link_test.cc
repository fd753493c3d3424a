// SPDX-License-Identifier: Apache-2.0
//
// What a link over shared memory does with numbers that no correct peer writes.
#include "runtime/collective/shm/shm_link.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr size_t kArrayBytes = 1 << 20;

// Two ranks in one process. Rank 0's link is under test; rank 1's memory is changed by hand.
class ShmLinkTest : public testing::Test {
 protected:
  ShmLinkTest() {
    std::array<int, 2> sockets{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets.data()),
              0);
    for (size_t rank = 0; rank < 2; ++rank) {
      arrays_[rank] = *SharedMemory::Create("test", kArrayBytes);
      memory_[rank] = *OwnRankMemory::Create(2, arrays_[rank]);
    }
    for (size_t rank = 0; rank < 2; ++rank) {
      const size_t peer = 1 - rank;
      NeighbourMemory neighbour =
          *NeighbourMemory::Attach(FileDescriptor(dup(memory_[peer]->descriptor())), 2, rank);
      EXPECT_TRUE(neighbour.AttachArrays(FileDescriptor(dup(arrays_[peer]->descriptor()))).ok());
      links_[rank] = std::make_unique<ShmLink>(
          ShmLink::Parts{.own = memory_[rank],
                         .peer = peer,
                         .neighbour = std::move(neighbour),
                         .doorbell = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
                         .socket = FileDescriptor(sockets[rank])});
    }
  }

  ShmLink& own() { return *links_[0]; }
  ShmLink& peer() { return *links_[1]; }
  // What the peer has written about rank 0.
  RankCounts& peer_counts() { return memory_[1]->Counts(0); }
  std::span<std::byte> peer_array() { return arrays_[1]->bytes(); }

  std::array<std::shared_ptr<SharedMemory>, 2> arrays_;
  std::array<std::shared_ptr<OwnRankMemory>, 2> memory_;
  std::array<std::unique_ptr<ShmLink>, 2> links_;
};

TEST_F(ShmLinkTest, ExposedBytesComeInTheirPlaceAmongCopiedOnes) {
  const std::vector<std::byte> header(64, std::byte{1});
  std::fill(peer_array().begin(), peer_array().end(), std::byte{2});
  ASSERT_EQ(*peer().Send(header), 64U);
  ASSERT_EQ(*peer().Expose(peer_array().first(1000)), 1000U);
  peer().EndSent();
  ASSERT_EQ(*peer().Send(header), 64U);

  std::vector<std::byte> received(2000);
  size_t count = 0;
  while (true) {
    const absl::StatusOr<size_t> got = own().Receive(std::span(received).subspan(count));
    ASSERT_TRUE(got.ok()) << got.status();
    if (*got == 0) break;
    count += *got;
  }

  std::vector<std::byte> expected(64, std::byte{1});
  expected.insert(expected.end(), 1000, std::byte{2});
  expected.insert(expected.end(), 64, std::byte{1});
  received.resize(count);
  EXPECT_EQ(received, expected);
  EXPECT_EQ(*peer().num_exposed_read(), 1000U);
}

TEST_F(ShmLinkTest, ExposesAFewRangesUntilTheFirstIsRead) {
  size_t exposed = 0;
  while (*peer().Expose(peer_array().subspan(exposed * 64, 64)) > 0) ++exposed;
  EXPECT_EQ(exposed, kExposedRangesMax);
  EXPECT_TRUE(peer().has_unsent());

  std::vector<std::byte> received(64);
  ASSERT_EQ(*own().Receive(received), 64U);

  EXPECT_EQ(*peer().Expose(peer_array().first(64)), 64U);
}

TEST_F(ShmLinkTest, OnlyTheSharedArraysCanBeExposed) {
  std::vector<std::byte> other(64);
  EXPECT_TRUE(peer().CanExpose(peer_array()));
  EXPECT_TRUE(peer().CanExpose(peer_array().last(1)));
  EXPECT_FALSE(peer().CanExpose(other));
  EXPECT_FALSE(peer().CanExpose(std::span(peer_array().data() + 1, kArrayBytes)));
  EXPECT_FALSE(own().CanExpose(peer_array()));
}

TEST_F(ShmLinkTest, ImpossibleRangesAreRefused) {
  const std::vector<std::pair<std::string, std::function<void(RankCounts&)>>> mistakes = {
      {"offset", [](RankCounts& counts) { counts.exposed[0].offset = kArrayBytes - 63; }},
      {"offset that overflows", [](RankCounts& counts) { counts.exposed[0].offset = ~63ULL; }},
      {"size", [](RankCounts& counts) { counts.exposed[0].num_bytes = kArrayBytes + 1; }},
      {"empty", [](RankCounts& counts) { counts.exposed[0].num_bytes = 0; }},
      {"number", [](RankCounts& counts) { counts.num_exposed_ranges = kExposedRangesMax + 1; }},
      {"part of an element", [](RankCounts& counts) { counts.exposed[0].num_bytes = 3; }},
  };
  ASSERT_EQ(*peer().Expose(peer_array().first(64)), 64U);
  const RankCounts correct = peer_counts();
  for (const auto& [what, make] : mistakes) {
    peer_counts() = correct;
    make(peer_counts());

    const absl::Status status = own().Peek(4, 64).status();

    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << what;
    EXPECT_THAT(std::string(status.message()), HasSubstr("corrupt")) << what;
  }
}

TEST_F(ShmLinkTest, MoreReadThanExposedIsRefused) {
  peer_counts().exposed_read = 1;

  EXPECT_EQ(own().num_exposed_read().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ShmLinkTest, APeerThatGoesHasReadAllOrTheLinkFails) {
  ASSERT_EQ(*own().Expose(arrays_[0]->bytes().first(64)), 64U);
  links_[1].reset();
  own().OnReady(POLLIN);
  EXPECT_EQ(own().num_exposed_read().status().code(), absl::StatusCode::kUnavailable);

  memory_[1]->Counts(0).exposed_read = 64;

  EXPECT_EQ(*own().num_exposed_read(), 64U);
}

}  // namespace
}  // namespace pushpull
