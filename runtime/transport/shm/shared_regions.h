// SPDX-License-Identifier: Apache-2.0
//
// The memory that the two ends of one connection share in addition to its rings, and the messages
// by which they come to share it. Frames refer to payloads in it. A receiver trusts only the
// reference, which arrives over the connection and is checked against the receiver's own mapping.
//
//   owner                                    reader
//   Offer --- kOffered, size --------------> opens an inbox
//         <-- kInbox, name and token ------
//   sends the descriptor there
//         --- kSent -----------------------> takes it from the inbox, maps it
//         <-- kTaken, or why not ----------
//   from now on Find returns places in it
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/transport/channel.h"
#include "runtime/transport/shm/descriptor_inbox.h"
#include "runtime/transport/shm/shared_memory.h"

namespace pushpull {

// A payload's location: the end of its frame's meta, if the frame has kFlagInRegion.
struct RegionPlace {
  uint64_t region = 0;
  uint64_t offset = 0;
  friend bool operator==(const RegionPlace&, const RegionPlace&) = default;
};
constexpr size_t kRegionPlaceBytes = 16;

void AppendPlace(const RegionPlace& place, std::vector<std::byte>& meta);
// Removes and returns it. kDataLoss: there is none.
absl::StatusOr<RegionPlace> TakePlace(std::vector<std::byte>& meta);

// Does no I/O except passing descriptors, which does not block. Thread-compatible.
class SharedRegions {
 public:
  // Maximum number of regions that one end of a connection may share, and of those among them whose
  // descriptors have not arrived yet. More are rejected.
  static constexpr size_t kRegionsMax = 4096;
  static constexpr size_t kWaitingMax = 64;

  // The inboxes' names begin with `prefix`.
  explicit SharedRegions(std::string prefix) : prefix_(std::move(prefix)) {}

  // The message that offers `memory`. `on_refused` is called once if the peer cannot map it.
  std::vector<std::byte> Offer(std::shared_ptr<const SharedMemory> memory, ShareRefused on_refused);
  // Processes a message from the peer; returns the answer, empty if there is none. kDataLoss:
  // malformed, or for a region that is not in that state.
  absl::StatusOr<std::vector<std::byte>> Answer(std::span<const std::byte> message);

  // The payload's place, if it is in memory that the peer has mapped.
  std::optional<RegionPlace> Find(std::span<const std::byte> payload) const;
  // The payload of a frame from the peer. kDataLoss: the place is not in memory that this end has
  // mapped.
  absl::StatusOr<Payload> Resolve(const RegionPlace& place, size_t num_bytes) const;

 private:
  enum class Message : uint8_t { kOffered = 1, kInbox = 2, kSent = 3, kTaken = 4 };
  // Memory of this end.
  struct Own {
    std::shared_ptr<const SharedMemory> memory;
    ShareRefused on_refused;
    bool is_taken = false;
  };
  // Memory of the peer.
  struct Theirs {
    uint64_t num_bytes = 0;
    std::optional<DescriptorInbox> inbox;
    std::shared_ptr<const AttachedMemory> memory;  // null until it is mapped
  };

  absl::StatusOr<std::vector<std::byte>> OnOffered(uint64_t region, uint64_t num_bytes);
  absl::StatusOr<std::vector<std::byte>> OnInbox(uint64_t region, const ShmOffer& inbox);
  absl::StatusOr<std::vector<std::byte>> OnSent(uint64_t region);
  absl::Status OnTaken(uint64_t region, const absl::Status& taken);

  const std::string prefix_;
  std::vector<Own> own_;  // by region
  // Regions that the peer has mapped, by their last byte.
  std::map<const std::byte*, uint64_t, std::less<>> own_by_end_;
  std::map<uint64_t, Theirs> theirs_;
  size_t num_waiting_ = 0;
};

}  // namespace pushpull
