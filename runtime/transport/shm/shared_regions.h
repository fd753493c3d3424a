// SPDX-License-Identifier: Apache-2.0
//
// The memory that the two ends of one connection share beside its rings, and the messages by which
// they come to share it. Frames refer to payloads that lie there; who receives one looks at nothing
// but the reference, which comes over the connection, and at where its own mapping ends.
//
//   owner                                    reader
//   Offer --- kOffered, size --------------> opens an inbox
//         <-- kInbox, name and token ------
//   sends the descriptor there
//         --- kSent -----------------------> looks into the inbox, maps
//         <-- kTaken, or why not ----------
//   Find gives places in it from now on
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

// Where a payload lies: the end of its frame's meta, where the flag says so.
struct RegionPlace {
  uint64_t region = 0;
  uint64_t offset = 0;
  friend bool operator==(const RegionPlace&, const RegionPlace&) = default;
};
constexpr size_t kRegionPlaceBytes = 16;

void AppendPlace(const RegionPlace& place, std::vector<std::byte>& meta);
// Takes it off again. kDataLoss: there is none.
absl::StatusOr<RegionPlace> TakePlace(std::vector<std::byte>& meta);

// Does no I/O but the handing over of descriptors, which does not block. Thread-compatible.
class SharedRegions {
 public:
  // Of one end of a connection, and of them those whose descriptors are still to come. More are
  // refused.
  static constexpr size_t kRegionsMax = 4096;
  static constexpr size_t kWaitingMax = 64;

  // `prefix` is that of inboxes.
  explicit SharedRegions(std::string prefix) : prefix_(std::move(prefix)) {}

  // The message that offers `memory`. `on_refused` is called once where the peer cannot have it.
  std::vector<std::byte> Offer(std::shared_ptr<const SharedMemory> memory, ShareRefused on_refused);
  // A message of the peer's; returns what to answer, mostly something.
  // kDataLoss: it is none, or of a region that is not in that state.
  absl::StatusOr<std::vector<std::byte>> Answer(std::span<const std::byte> message);

  // Where in memory that the peer has, if there, the payload lies.
  std::optional<RegionPlace> Find(std::span<const std::byte> payload) const;
  // The payload of a frame of the peer's. kDataLoss: the place is not in memory that this end has
  // from it.
  absl::StatusOr<Payload> Resolve(const RegionPlace& place, size_t num_bytes) const;

 private:
  enum class Message : uint8_t { kOffered = 1, kInbox = 2, kSent = 3, kTaken = 4 };
  // Memory of this end.
  struct Own {
    std::shared_ptr<const SharedMemory> memory;
    ShareRefused on_refused;
    bool is_taken = false;
  };
  // Memory of the peer's.
  struct Theirs {
    uint64_t num_bytes = 0;
    std::optional<DescriptorInbox> inbox;
    std::shared_ptr<const AttachedMemory> memory;  // null until it is mapped
  };

  absl::StatusOr<std::vector<std::byte>> OnOffered(uint64_t region, uint64_t num_bytes);
  absl::StatusOr<std::vector<std::byte>> OnInbox(uint64_t region, const ShmOffer& inbox);
  absl::StatusOr<std::vector<std::byte>> OnSent(uint64_t region);
  absl::Status OnTaken(uint64_t region, const absl::Status& taken);
  static std::vector<std::byte> Taken(uint64_t region, const absl::Status& status);

  const std::string prefix_;
  std::vector<Own> own_;  // by region
  // Those that the peer has, by their last byte.
  std::map<const std::byte*, uint64_t, std::less<>> own_by_end_;
  std::map<uint64_t, Theirs> theirs_;
  size_t num_waiting_ = 0;
};

}  // namespace pushpull
