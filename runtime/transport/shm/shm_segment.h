// SPDX-License-Identifier: Apache-2.0
//
// The shared memory of one connection: two rings of payloads, one a direction, and two random
// tokens by which the ends prove to each other that they have mapped the same memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/shm/payload_ring.h"

namespace pushpull {

ShmToken RandomToken();

// Which of the two ends; the connecting one creates the segment.
enum class ShmSide { kConnecting, kAccepting };

// Owns a mapping. Movable. Thread-compatible.
class ShmSegment {
 public:
  // Creates one that has a name until Unlink or its destruction. Blocks some milliseconds: all
  // pages are allocated before it returns. Errors name the folder:
  //   kResourceExhausted                 no space in it
  //   kPermissionDenied, kNotFound, ...  it cannot be used
  static absl::StatusOr<ShmSegment> Create(const std::string& folder, const std::string& job);

  // Maps the offered one and removes its name, which nobody else needs. Errors say why the two ends
  // do not share memory, most often kNotFound: a different folder of the same path.
  static absl::StatusOr<ShmSegment> Attach(const std::string& folder, const ShmOffer& offer);

  ~ShmSegment();
  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  // What the connecting side sends in its hello.
  const ShmOffer& offer() const { return offer_; }
  // The accepting side's answer: only a process that has mapped the segment knows it.
  const ShmToken& proof() const { return proof_; }

  // The name without its random digits.
  std::string NamePrefix() const;

  // Removes the name; the memory stays.
  void Unlink();

  // The rings of frames that this side sends and receives.
  std::span<std::byte> Outgoing(ShmSide side) const;
  std::span<std::byte> Incoming(ShmSide side) const;

 private:
  explicit ShmSegment(std::span<std::byte> memory) : memory_(memory) {}

  std::span<std::byte> memory_;
  ShmOffer offer_;
  ShmToken proof_{};
  std::string path_;      // while it has a name
  FileDescriptor owned_;  // locked while it has a name, so that SweepSegments skips it
};

// The folder in which a process and its neighbours share memory: /dev/shm, or the memory volume of
// a pod's containers. Thread-safe.
class ShmFolder {
 public:
  // Removes segments that killed processes left behind. Blocks on the file system.
  ShmFolder(std::string path, std::string job, const Log& log);

  // As those of ShmSegment.
  absl::StatusOr<ShmSegment> Create() const { return ShmSegment::Create(path_, job_); }
  absl::StatusOr<ShmSegment> Attach(const ShmOffer& offer) const {
    return ShmSegment::Attach(path_, offer);
  }
  // Logs why a connection has no shared memory; only the first call does.
  void WarnOnce(const std::string& peer, const absl::Status& why) const;

 private:
  const std::string path_;
  const std::string job_;
  const Log log_;
  mutable std::atomic<bool> has_warned_ = false;
};

// Null for an empty path.
std::unique_ptr<ShmFolder> OpenShmFolder(const std::string& path,
                                         const std::string& job,
                                         const Log& log);

}  // namespace pushpull
