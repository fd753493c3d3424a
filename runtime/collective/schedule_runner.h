// SPDX-License-Identifier: Apache-2.0
//
// Carries out a rank's part of a collective: moves each operation of its schedule along its range
// as far as the links and earlier operations allow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/collective/call_header.h"
#include "runtime/collective/peer_link.h"
#include "runtime/collective/reduction_op.h"
#include "runtime/collective/schedule.h"

namespace pushpull {

// How much of an operation is moved before it is another's turn. Bytes that arrive, are reduced and
// are sent on stay in the processor's cache; with a quarter of this size, a call over sockets takes
// a tenth more CPU time.
constexpr size_t kMoveBytes = 512 * 1024;

// From so many bytes on, an operation's elements are exposed where the link can do that. For fewer,
// waiting until the peer has read them takes longer than copying them.
constexpr size_t kExposedBytesMin = 32 * 1024;

// A schedule, and the queues of operations that follow one another: those to one peer, those from
// one peer. Different queues proceed concurrently.
class PreparedSchedule {
 public:
  struct Queue {
    int peer = -1;  // -1: operations within this rank, one per queue
    bool is_send = false;
    std::vector<uint32_t> ops;
  };

  explicit PreparedSchedule(RankSchedule schedule);

  const std::vector<ScheduleOp>& ops() const { return schedule_.ops; }
  bool needs_scratch() const { return schedule_.needs_scratch; }
  // Receives first, sends last: what has just arrived is passed on while it is in the cache.
  const std::vector<Queue>& queues() const { return queues_; }

 private:
  RankSchedule schedule_;
  std::vector<Queue> queues_;
};

// One call of a collective on this rank.
struct CollectiveCall {
  const PreparedSchedule* schedule = nullptr;
  CallHeader header;
  size_t ranks = 1;
  std::span<std::byte> values;      // the array, changed in place
  std::span<std::byte> scratch;     // as large, if the schedule needs it
  const ReductionOp* op = nullptr;  // null: nothing is reduced
};

// An error of a link, and the rank at its other end.
struct LinkFailure {
  int peer = -1;
  absl::Status status;
};

// One call at a time. Thread-compatible.
class ScheduleRunner {
 public:
  // The links outlive the runner.
  explicit ScheduleRunner(LinkSet& links) : links_(links) {}

  // Begins a call; everything that it points to outlives the call.
  void Begin(const CollectiveCall& call);

  // Moves what can be moved now, each queue by at most kMoveBytes; returns whether anything moved:
  // if not, everything that can be moved waits for what Wants() says. Never blocks. Errors are
  // those of failure().
  absl::StatusOr<bool> Advance();
  // Every operation is done, no bytes from this rank wait in a link, and no peer still reads them.
  bool is_done() const { return num_left_ == 0 && !HasUnsent(); }
  const LinkFailure& failure() const { return failure_; }

  // What the links of unfinished operations are waiting for, by rank.
  const std::vector<LinkWants>& Wants();

  // Bytes of elements that all calls have sent.
  uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct Progress {
    size_t next = 0;          // the queue's current operation
    size_t header_bytes = 0;  // of the header, sent or received so far
    // Of a queue that exposes what it sends: how far the current operation is exposed, the
    // operation that the peer is reading, and the link's count when that was last looked up.
    bool exposes = false;
    uint64_t exposed_until = 0;
    size_t being_read = 0;
    uint64_t num_read = 0;
  };

  bool HasUnsent() const;
  PeerLink& LinkTo(int peer) { return *links_.links[static_cast<size_t>(peer)]; }
  absl::Status Fail(int peer, const absl::Status& status);
  // How far operation `index` may go, in bytes.
  uint64_t LimitOf(uint32_t index) const;
  bool IsExposed(const Progress& progress, uint32_t index) const;
  // Where the queue's current operation continues. One that is exposed is further here than in
  // positions_, which says how far the peer has read it.
  uint64_t Continuation(const Progress& progress, uint32_t index) const;
  void BeginOp(const PreparedSchedule::Queue& queue, Progress& progress);
  // Moves the positions of exposed operations to where the peer is; returns whether any moved.
  absl::StatusOr<bool> FollowReader(const PreparedSchedule::Queue& queue, Progress& progress);
  absl::StatusOr<bool> AdvanceQueue(const PreparedSchedule::Queue& queue, Progress& progress);
  absl::StatusOr<bool> MoveHeader(const PreparedSchedule::Queue& queue, Progress& progress);
  // Returns how many bytes of the operation were moved.
  absl::StatusOr<size_t> Move(const ScheduleOp& op, uint64_t at, size_t num_bytes);
  absl::StatusOr<size_t> Expose(Progress& progress, uint32_t index, size_t num_bytes);
  absl::StatusOr<size_t> ReceiveReduce(const ScheduleOp& op, std::span<std::byte> into);
  void EndOp(const ScheduleOp& op);

  LinkSet& links_;
  CollectiveCall call_;
  size_t element_bytes_ = 1;
  std::array<std::byte, kCallHeaderBytes> header_{};
  std::vector<uint64_t> positions_;  // of each operation, in bytes: what it no longer needs
  std::vector<uint64_t> ends_;
  std::vector<Progress> progress_;  // of each queue
  std::vector<LinkWants> wants_;
  size_t num_left_ = 0;
  LinkFailure failure_;
  uint64_t bytes_sent_ = 0;
  std::vector<uint64_t> num_exposed_;  // bytes of all calls, by peer
};

}  // namespace pushpull
