// SPDX-License-Identifier: Apache-2.0
//
// How the workers of a ring reach each other, in up to three stages. If there are several hosts,
// and a host has several workers, the workers of each host sum among themselves, and the first one
// of each host continues for all of them. If these are in several racks, those of a rack sum next.
// The remaining sums are added up between all racks, or hosts, and the result travels the same way
// back. So between hosts one array per host is sent, and between racks one per rack, however many
// workers there are. If all racks have the same number of these workers, a rack's share is spread
// over them: each sums a piece of the array and sends it over the uplink.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/collective/communicator.h"
#include "runtime/collective/interrupt.h"
#include "runtime/collective/rank_mesh.h"
#include "runtime/collective/reduction_op.h"
#include "runtime/membership/control.h"
#include "runtime/tls/tls_identity.h"

namespace pushpull {

// Lists of ranks, ordered by the first rank of each; ascending within each.
struct RankGroups {
  std::vector<std::vector<uint32_t>> groups;

  // There are several groups, at least one of them with several ranks.
  bool are_a_stage() const;
  bool are_equally_large() const;
  // The rank's group, as a position in `groups`.
  size_t Find(uint32_t rank) const;
  const std::vector<uint32_t>& Of(uint32_t rank) const { return groups[Find(rank)]; }
  // The rank's position in its group.
  uint32_t PlaceOf(uint32_t rank) const;
};

// Which ranks meet in which stage. Pure.
struct RingStages {
  RankGroups hosts;  // from the workers' addresses
  // The ranks that continue after the stage of the hosts, by rack; all in one group if any of their
  // racks is unknown.
  RankGroups racks;

  bool is_one_host() const { return hosts.groups.size() == 1; }
  bool has_racks() const { return racks.are_a_stage(); }
  // Each rank of a rack sends a piece of the array; otherwise the first one sends all of it.
  bool are_racks_split() const { return has_racks() && racks.are_equally_large(); }
  // Whether the rank continues after the stage of the hosts.
  bool GoesOn(uint32_t rank) const;
  // The ranks that this one meets in the last stage; empty: it does not take part in it.
  std::vector<uint32_t> LastOf(uint32_t rank) const;
};
RingStages StagesOf(const FormRing& form);

// This worker's end of the links. The references outlive the links.
struct RingEnd {
  const RankListener& listener;
  const Interrupt& interrupt;
  WorkerId self;
  bool has_shm = false;  // workers of one host use shared memory, unless they have TLS
  // This worker's certificate; the others' must be those of the workers they claim to be. Null:
  // plain text.
  std::shared_ptr<const TlsIdentity> tls = nullptr;
  // What workers of this host read in place of what this one sends them over shared memory, if it
  // has the values of the call. May be null.
  std::shared_ptr<const SharedMemory> arrays = nullptr;
  // Sums try algorithms and use the fastest. Otherwise their bits are the same in every run.
  bool tries_algorithms = false;
};

struct EndedRingTrial {
  std::string stage;  // "host", "rack", or "ring" for the last one
  EndedTrial trial;
};

// All workers make the same calls in the same order. Calls block, and end soon after the interrupt
// is set. Errors are those of Communicator and end the ring. Thread-compatible.
class RingLinks {
 public:
  // Connects to all workers that this one needs; retries for a minute if one cannot be reached.
  //
  //   kInvalidArgument  this worker is not in the ring, or an address is invalid
  //   others            as ConnectRanks
  static absl::StatusOr<std::unique_ptr<RingLinks>> Connect(const RingEnd& end,
                                                            const FormRing& form);

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  // All workers are in one stage, on one host, and share memory.
  bool is_shm() const { return is_shm_; }

  // Every worker gets the same bits.
  absl::Status Reduce(std::span<std::byte> values, const ReductionOp& op, Deadline deadline);
  // Every worker gets the bytes of `source`, a rank.
  absl::Status Broadcast(std::span<std::byte> values, uint32_t source, Deadline deadline);

  // Those that have ended since the last call.
  std::vector<EndedRingTrial> TakeEndedTrials();

  // Bytes of elements that this worker has sent.
  uint64_t bytes_sent() const;

 private:
  RingLinks(uint32_t rank, uint32_t size, RingStages stages)
      : rank_(rank), size_(size), stages_(std::move(stages)) {}

  // Among the ranks that continue after the stage of the hosts; `source` is one of them.
  absl::Status ReduceOverRacks(std::span<std::byte> values,
                               const ReductionOp& op,
                               Deadline deadline);
  absl::Status BroadcastOverRacks(std::span<std::byte> values, uint32_t source, Deadline deadline);

  const uint32_t rank_;
  const uint32_t size_;
  const RingStages stages_;
  bool is_shm_ = false;
  std::unique_ptr<Communicator> of_host_;  // null: there is no such stage
  std::unique_ptr<Communicator> of_rack_;  // likewise, or this worker does not continue
  std::unique_ptr<Communicator> last_;     // null: this worker does not take part
};

}  // namespace pushpull
