// SPDX-License-Identifier: Apache-2.0
//
// The shared memory of one connection: two rings of payloads, one a direction, and two random
// numbers by which the ends convince each other that they have mapped the same memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/shm/payload_ring.h"

namespace pushpull {

ShmToken RandomToken();

// Which of the two ends: the one that connects has made the segment.
enum class ShmSide { kConnecting, kAccepting };

// A mapping; gone with this object. Movable. Thread-compatible.
class ShmSegment {
 public:
  // Makes one that has a name, until Unlink or its end. All of its memory is there from now on.
  // Blocks for the pages, some milliseconds. Errors name the folder and what to do:
  // kResourceExhausted: no space; kPermissionDenied, kNotFound, ...: of the folder.
  static absl::StatusOr<ShmSegment> Create(const std::string& folder, const std::string& job);

  // Maps the one that is offered, and takes its name away: nobody else needs it. Errors say why the
  // two ends do not share memory, most often kNotFound: another folder of the same name.
  static absl::StatusOr<ShmSegment> Attach(const std::string& folder, const ShmOffer& offer);

  ~ShmSegment();
  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  // What the connecting side says of it.
  const ShmOffer& offer() const { return offer_; }
  // What only those know who have mapped it: the accepting side's answer.
  const ShmToken& proof() const { return proof_; }

  // Of its name, without the random digits.
  std::string NamePrefix() const;

  // The name goes, the memory stays.
  void Unlink();

  // For frames that this side sends, and for those that it receives.
  std::span<std::byte> Outgoing(ShmSide side) const;
  std::span<std::byte> Incoming(ShmSide side) const;

 private:
  explicit ShmSegment(std::span<std::byte> memory) : memory_(memory) {}

  std::span<std::byte> memory_;
  ShmOffer offer_;
  ShmToken proof_{};
  std::string path_;      // while it has a name
  FileDescriptor owned_;  // locked while it has a name, so that nobody sweeps it
};

// Removes segments from the folder whose makers are gone. Those in use are locked.
void SweepSegments(const std::string& folder);

}  // namespace pushpull
