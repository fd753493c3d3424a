// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one test, connected over real sockets or shared memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "runtime/collective/communicator.h"
#include "runtime/collective/rank_mesh.h"

namespace pushpull {

constexpr GroupToken kTestGroup = {7, 11};

inline Deadline TestDeadline() {
  return Deadline::After(std::chrono::seconds(60));
}

inline std::string NameOf(LinkChannel channel) {
  return channel == LinkChannel::kTcp ? "tcp" : "shm";
}

// Runs `body` on every rank in a thread of its own, and returns what each has returned. Each has
// `bytes` of memory that the others read in place, if the channel is shm and `bytes` is not 0.
inline std::vector<absl::Status> OnSharingRanks(
    uint32_t ranks,
    LinkChannel channel,
    size_t bytes,
    const std::function<absl::Status(std::unique_ptr<Communicator>, std::span<std::byte>)>& body) {
  std::vector<RankListener> listeners;
  std::vector<HostPort> addresses;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    listeners.push_back(*RankListener::Listen({"127.0.0.1", 0}));
    addresses.push_back({"127.0.0.1", listeners.back().port()});
  }
  std::vector<absl::Status> results(ranks, absl::UnknownError("has not run"));
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::shared_ptr<const SharedMemory> arrays =
          bytes == 0 ? nullptr : *SharedMemory::Create("test", bytes);
      const MeshOptions options = {.rank = rank,
                                   .addresses = addresses,
                                   .group = kTestGroup,
                                   .channel = channel,
                                   .arrays = arrays};
      absl::StatusOr<LinkSet> links = ConnectRanks(listeners[rank], options, TestDeadline());
      results[rank] = links.ok()
                          ? body(std::make_unique<Communicator>(rank, *std::move(links)),
                                 arrays == nullptr ? std::span<std::byte>() : arrays->bytes())
                          : links.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

inline std::vector<absl::Status> OnRanks(
    uint32_t ranks,
    LinkChannel channel,
    const std::function<absl::Status(std::unique_ptr<Communicator>)>& body) {
  return OnSharingRanks(
      ranks, channel, 0, [&](std::unique_ptr<Communicator> own, std::span<std::byte>) {
        return body(std::move(own));
      });
}

}  // namespace pushpull
