// SPDX-License-Identifier: Apache-2.0
//
// Collectives between the ranks of a group, without servers: every rank is a process, or a thread
// with its own communicator, and all make the same calls in the same order.
//
//   auto links = ConnectRanks(listener, {.rank = 1, .addresses = addresses}, deadline);
//   Communicator ranks(1, *std::move(links));
//   const ReductionOp sum(ElementKind::kFloat32, ElementOp::kSum);
//   absl::Status done = ranks.AllReduce(bytes, sum, Algorithm::kAuto, deadline);
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/collective/algorithm_choice.h"
#include "runtime/collective/algorithm_trial.h"
#include "runtime/collective/interrupt.h"
#include "runtime/collective/peer_link.h"
#include "runtime/collective/reduction_op.h"
#include "runtime/collective/schedule.h"
#include "runtime/collective/schedule_runner.h"

namespace pushpull {

// What a trial has found for the calls of one collective and size.
struct EndedTrial {
  Collective collective = Collective::kAllReduce;
  uint64_t num_bytes = 0;  // of the array
  // Of those that were measured to the end, the fastest first, which is used from now on.
  std::vector<AlgorithmTrial::Result> results;
};

struct TriedCalls {
  std::vector<Collective> collectives = {};
  uint64_t bytes_min = 1;  // of the array
};

// A call blocks until this rank's part is done, though perhaps not yet every other rank's, and
// until nobody reads its array any more, or until `deadline` passes. Arrays belong to the caller
// and are changed in place; after an error their elements are undefined. Algorithm::kAuto means
// GuessFor the array's size, or what a trial finds (TryAlgorithms).
//
// A call that fails ends the communicator: its links are closed, so that all other ranks' calls end
// too, and every later call fails. Texts name this rank, the call and the other rank.
//
//   kInvalidArgument     the array is no whole number of elements, or there is no such root (these
//                        two leave the communicator as it is); or another rank makes a different
//                        call: the text has both
//   kDeadlineExceeded    the text names the ranks that are awaited
//   kUnavailable         another rank has failed or is gone
//   kDataLoss            another rank sends something invalid
//   kFailedPrecondition  an earlier call has failed; the text has its error. Reconnect the ranks.
//   kCancelled           the interrupt is set
//
// One call at a time. Thread-compatible.
class Communicator {
 public:
  Communicator(uint32_t rank, LinkSet links);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // `interrupt` ends calls from another thread; it outlives this object.
  void UseInterrupt(const Interrupt& interrupt) { interrupt_ = &interrupt; }

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return static_cast<uint32_t>(links_count_); }

  // Every rank gets the element-wise reduction of all arrays, with the same bits.
  absl::Status AllReduce(std::span<std::byte> values,
                         const ReductionOp& op,
                         Algorithm algorithm,
                         Deadline deadline);
  // Rank i gets piece i of AllReduce's result, in its place (PieceOf); the other elements become
  // undefined. Returns the piece's range.
  absl::StatusOr<ElementRange> ReduceScatter(std::span<std::byte> values,
                                             const ReductionOp& op,
                                             Algorithm algorithm,
                                             Deadline deadline);
  // Rank i has piece i of the array in its place; every rank gets all pieces.
  absl::Status AllGather(std::span<std::byte> values,
                         size_t element_bytes,
                         Algorithm algorithm,
                         Deadline deadline);
  // Every rank gets the bytes of `root`.
  absl::Status Broadcast(std::span<std::byte> values,
                         uint32_t root,
                         Algorithm algorithm,
                         Deadline deadline);

  // From now on kAuto tries algorithms in the first calls of each size of these collectives, and
  // then uses the fastest (algorithm_trial.h), so bits may differ between runs. For calls which all
  // ranks begin at about the same time, or which are large: otherwise ranks measure how they wait
  // for each other. All ranks call it, before the same call.
  void TryAlgorithms(TriedCalls calls) { tried_ = std::move(calls); }
  // The trials that have ended since the last call.
  std::vector<EndedTrial> TakeEndedTrials() { return std::exchange(ended_trials_, {}); }
  // Null: no trial has begun for it.
  const AlgorithmTrial* FindTrial(Collective collective, uint64_t num_bytes) const;

  // Bytes of elements that this rank's calls have sent, without headers.
  uint64_t bytes_sent() const { return runner_.bytes_sent(); }

 private:
  struct Call {
    Collective collective;
    Algorithm algorithm;
    std::span<std::byte> values;
    size_t element_bytes;
    const ReductionOp* op = nullptr;
    uint32_t root = 0;
  };
  struct CachedSchedule {
    ScheduleRequest request;
    std::unique_ptr<const PreparedSchedule> schedule;
  };

  absl::Status Reduce(Collective collective,
                      std::span<std::byte> values,
                      const ReductionOp& op,
                      Algorithm algorithm,
                      Deadline deadline);
  absl::Status Run(Call call, Deadline deadline);
  absl::Status Check(const Call& call) const;
  AlgorithmTrial* TrialFor(const Call& call);
  // Adds a call to its trial.
  absl::Status Measured(const Call& call,
                        AlgorithmTrial& trial,
                        Duration elapsed,
                        Deadline deadline);
  const PreparedSchedule& ScheduleFor(const ScheduleRequest& request);
  absl::Status Finish(Deadline deadline);
  // Spins briefly if that makes sense, then sleeps until a link is ready.
  absl::Status Wait(Deadline deadline);
  absl::Status Sleep(const std::vector<LinkWants>& wants, Deadline deadline);
  absl::Status LateError();
  // Closes all links.
  absl::Status Break(const CallHeader& header, const ReductionOp* op, const absl::Status& why);

  const uint32_t rank_;
  const size_t links_count_;
  LinkSet links_;
  ScheduleRunner runner_;
  TriedCalls tried_;
  std::map<std::pair<Collective, uint64_t>, AlgorithmTrial> trials_;  // by bytes of the array
  std::vector<EndedTrial> ended_trials_;
  const Interrupt* interrupt_ = nullptr;
  Duration spin_{0};
  size_t piece_bytes_ = 0;  // per rank in each block of an all-reduce; 0: no blocks
  uint64_t num_calls_ = 0;
  absl::Status broken_;
  std::vector<CachedSchedule> schedules_;
  size_t next_replaced_ = 0;
  std::vector<std::byte> scratch_;
  std::vector<pollfd> polled_;
  std::vector<size_t> polled_ranks_;
};

}  // namespace pushpull
