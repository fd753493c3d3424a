// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one test, connected over real sockets or shared memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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

// Runs `body` on every rank in a thread of its own, and returns what each has returned.
inline std::vector<absl::Status> OnRanks(
    uint32_t ranks,
    LinkChannel channel,
    const std::function<absl::Status(std::unique_ptr<Communicator>)>& body) {
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
      const MeshOptions options = {
          .rank = rank, .addresses = addresses, .group = kTestGroup, .channel = channel};
      absl::StatusOr<LinkSet> links = ConnectRanks(listeners[rank], options, TestDeadline());
      results[rank] = links.ok() ? body(std::make_unique<Communicator>(rank, *std::move(links)))
                                 : links.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace pushpull
