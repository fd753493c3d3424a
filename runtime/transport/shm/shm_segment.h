// SPDX-License-Identifier: Apache-2.0
//
// The shared memory of one connection: two rings of payloads, one per direction, and a random token
// that proves to the connecting end that it has mapped its peer's memory. It has no name anywhere,
// and nobody can change its size: a peer that could shrink it could kill the process that reads it.
//
//   connecting end                                accepting end
//   opens an inbox
//   hello: the inbox's name and token ----------> makes the memory
//                                          <----- sends its descriptor to the inbox
//   takes the descriptor, checks seals     <----- ack: made, the token in the memory
//   and size, maps it, finds the token
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/shm/descriptor_inbox.h"
#include "runtime/transport/shm/payload_ring.h"

namespace pushpull {

// One of the two ends; the accepting one makes the segment.
enum class ShmSide { kConnecting, kAccepting };

// Owns a mapping. Movable. Thread-compatible.
class ShmSegment {
 public:
  // Makes a segment, zeroed except for its token, and its descriptor for the peer. Pages are
  // allocated when first used. kResourceExhausted: no descriptor or address space is left.
  struct Made;
  static absl::StatusOr<Made> Make();

  // Maps the peer's segment. kInvalidArgument: not such memory, or its size can change.
  // kResourceExhausted: it cannot be mapped.
  static absl::StatusOr<ShmSegment> Attach(const FileDescriptor& memory);

  ~ShmSegment();
  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  // Stored in the memory: if it equals the ack's, the connecting end has the right memory.
  const ShmToken& proof() const { return proof_; }

  // The rings of frames that this side sends and receives.
  std::span<std::byte> Outgoing(ShmSide side) const;
  std::span<std::byte> Incoming(ShmSide side) const;

  // Keeps `lease` for as long as the segment lives.
  void Hold(std::shared_ptr<const void> lease) { lease_ = std::move(lease); }

 private:
  explicit ShmSegment(std::span<std::byte> memory) : memory_(memory) {}

  static absl::StatusOr<ShmSegment> Map(int file);

  std::span<std::byte> memory_;
  ShmToken proof_{};
  std::shared_ptr<const void> lease_;
};

struct ShmSegment::Made {
  ShmSegment segment;
  FileDescriptor descriptor;
};

// The processes with which this one shares memory: those that have the same folder mounted, which
// is /dev/shm or the memory volume of a pod's containers. Nothing is written to it. Thread-safe.
class ShmFolder {
 public:
  // Maximum number of segments, of 8 MiB each, that one process makes for its peers.
  static constexpr size_t kSegmentsMax = 128;

  // Blocks on the file system.
  ShmFolder(const std::string& path, const std::string& job, const Log& log);

  // Connecting end: opens the inbox to which the peer sends its memory. Errors name the folder.
  absl::StatusOr<DescriptorInbox> OpenInbox() const;
  // Accepting end: makes memory, which is in that inbox when this returns.
  //   kNotFound           the peer has another folder or belongs to another job
  //   kUnavailable        there is no such inbox in this network namespace
  //   kResourceExhausted  too many segments
  absl::StatusOr<ShmSegment> MakeFor(const ShmOffer& inbox) const;
  // The prefix of all inboxes' names; empty if there is no folder.
  const std::string& prefix() const { return prefix_; }

  // Logs why a connection has no shared memory; only the first call does.
  void WarnOnce(const std::string& peer, const absl::Status& why) const;

 private:
  const Log log_;
  absl::Status found_;
  std::string prefix_;
  const std::shared_ptr<std::atomic<size_t>> num_made_ = std::make_shared<std::atomic<size_t>>(0);
  mutable std::atomic<bool> has_warned_ = false;
};

// Null for an empty path.
std::unique_ptr<ShmFolder> OpenShmFolder(const std::string& path,
                                         const std::string& job,
                                         const Log& log);

}  // namespace pushpull
