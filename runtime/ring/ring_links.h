// SPDX-License-Identifier: Apache-2.0
//
// How the workers of a ring reach each other. Where several hosts have several workers each, in two
// stages: the workers of a host sum among themselves, then the first ones of all hosts do, and each
// hands the result to the others of its host. So what travels between hosts is one array for each
// host, however many workers it has.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/collective/communicator.h"
#include "runtime/collective/interrupt.h"
#include "runtime/collective/rank_mesh.h"
#include "runtime/membership/control.h"
#include "runtime/tls/tls_identity.h"

namespace pushpull {

// Which ranks meet in which stage. Hosts are told by the workers' addresses. Pure.
struct RingStages {
  // Of each host, in the order of its first rank: its ranks, ascending.
  std::vector<std::vector<uint32_t>> hosts;

  bool is_one_host() const { return hosts.size() == 1; }
  // More than one host, and one with several workers.
  bool has_two() const;
  // The position of the rank's host in `hosts`.
  size_t HostOf(uint32_t rank) const;
};
RingStages StagesOf(const FormRing& form);

// This worker's end of the links. The references outlive the links.
struct RingEnd {
  const RankListener& listener;
  const Interrupt& interrupt;
  WorkerId self;
  bool has_shm = false;  // workers of one host use shared memory, unless they have TLS
  // This worker's certificate; those of the others must be of the workers that they say they are.
  // Null: plain text.
  std::shared_ptr<const TlsIdentity> tls = nullptr;
};

// All workers make the same calls in the same order. They block, and end soon after the interrupt
// is set. Errors are those of Communicator, and end the ring. Thread-compatible.
class RingLinks {
 public:
  // Connects to all others that this worker needs; tries again for a minute where one cannot be
  // reached.
  //
  //   kInvalidArgument  this worker is not of the ring, or an address is none
  //   others            as ConnectRanks
  static absl::StatusOr<std::unique_ptr<RingLinks>> Connect(const RingEnd& end,
                                                            const FormRing& form);

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  // Between all workers: one stage, on one host, in memory that they share.
  bool is_shm() const { return is_shm_; }

  // Every worker gets the same bits.
  absl::Status Sum(std::span<std::byte> values, const ReductionOp& op, Deadline deadline);
  // Every worker gets the bytes of `source`, a rank.
  absl::Status Broadcast(std::span<std::byte> values, uint32_t source, Deadline deadline);

  // Bytes of elements that this worker has sent.
  uint64_t bytes_sent() const;

 private:
  RingLinks(uint32_t rank, uint32_t size, RingStages stages)
      : rank_(rank), size_(size), stages_(std::move(stages)) {}

  const uint32_t rank_;
  const uint32_t size_;
  const RingStages stages_;
  bool is_shm_ = false;
  std::unique_ptr<Communicator> all_;        // one stage
  std::unique_ptr<Communicator> of_host_;    // two: with the workers of this host
  std::unique_ptr<Communicator> of_firsts_;  // with the first ones of other hosts; null: not first
};

}  // namespace pushpull
