// SPDX-License-Identifier: Apache-2.0
//
// The job's position in its data set where workers have no common steps (modes Async and Bounded):
// which part of the epoch each worker has leased. It is the value of the same chunk as a
// SampleQueue (docs/protocol.md section 4, "Data positions"), whose primary changes it with every
// push to it, for the worker that pushes, and when a worker is gone. Pure.
//
//   lease:  [ batch in work | planned ............ ]
//
//   the batch is done     -> the next one of the lease is in work
//   the lease is used up  -> a part that came back, or else half of the longest plan
//   nothing to hand out   -> the worker waits until a lease comes back or the epoch is over
//   the worker is gone    -> its lease, batch in work included, comes back
//
// Only the batch in work is bound to its worker: a worker begins a batch when it has the answer to
// its push, which contains its lease as it is then. What is planned may go to others, and is what
// loaders load ahead. Leases are cut at multiples of the batch, so an epoch has as many batches as
// if one worker had all of them. An epoch begins when all samples of the one before have counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "pushpull/samples.h"

#include "runtime/base/ids.h"
#include "runtime/consistency/sample_queue.h"

namespace pushpull {

// Thread-compatible value.
class SampleLeases {
 public:
  // So many workers can have leases, or wait for one.
  static constexpr size_t kWorkersMax = 160;

  // Everything that is left of the queue's epoch, without leases.
  explicit SampleLeases(const SampleQueue& queue);

  // Whether a value of the chunk is one of these, and not a SampleQueue.
  static bool AreIn(std::span<const std::byte> bytes);
  // kDataLoss: not leases, damaged, or from a newer version of the program.
  static absl::StatusOr<SampleLeases> Decode(std::span<const std::byte> bytes);
  // SampleQueue::kBytes long.
  std::vector<std::byte> Encode() const;

  // Members that have not pushed yet, among whom what is left is divided evenly.
  void Admit(std::span<const WorkerId> workers);

  // What the next epoch has, should it begin now: the size of the worker's data set, ignored unless
  // 1 to 2^53, and the version of the value.
  struct NextEpoch {
    double num_samples = 0;
    Step version;
  };
  // A worker has pushed. If none of the epoch's samples has counted, it begins anew with the
  // worker's number of them: a job that is resumed may have another.
  void Commit(WorkerId worker, SampleReport report, const NextEpoch& next);
  // Takes back the leases of all workers that are not `present`. Returns whether there were any.
  bool Retain(absl::FunctionRef<bool(WorkerId)> is_present);

  // The worker's batch; with `ahead` above 0 the one so many after it, if the lease stays. Beyond
  // the lease: nothing, in the next epoch.
  StepSamples ShareOf(WorkerId worker, Step step, uint64_t ahead) const;
  // Whether it has asked, and nothing could be handed out. A worker whose latest value is from
  // before this epoch does not wait: it may want no more epochs.
  bool IsWaiting(WorkerId worker, Step known) const;
  // Whether it has neither a lease nor the place for one.
  bool IsTurnedAway(WorkerId worker) const;

  // Everything that is left of the epoch when the batches of `counted` are done, as the state
  // before `next` in a mode with common steps. Without members.
  SampleQueue ToQueue(std::span<const WorkerId> counted, Step next) const;

  // Sets the number of samples that all workers together have in work at a time; above 0.
  void SetGlobalBatch(uint64_t batch);

  uint64_t epoch() const { return epoch_; }
  // Some of the epoch's samples have counted, so its size stays.
  bool has_counted() const { return counted_ > 0; }
  const SampleSource& source() const { return source_; }
  // Samples that all workers have in work at a time.
  uint64_t batch() const;

 private:
  struct Lease {
    WorkerId worker;
    uint32_t in_work = 0;  // the first ones of `range`
    SampleRange range;     // empty: the worker waits
  };

  std::vector<Lease>::iterator PlaceFor(WorkerId worker);
  const Lease* Find(WorkerId worker) const;
  bool HasRoom() const;
  uint64_t BatchOfWorker() const;
  uint32_t NextBatchOf(uint64_t count) const;
  void Give(SampleRange range, Lease& lease) const;
  void GiveBack(const Lease& lease);
  void HandOut(const NextEpoch& next);
  void HandOutEvenly(SampleRange range, std::span<Lease* const> waiting) const;
  bool TakePlanned(Lease& waiting);
  void BeginEpoch(uint64_t epoch, const NextEpoch& next);
  bool IsEpochOver() const;
  uint64_t EndOfEpoch() const;

  SampleSource source_;
  uint64_t epoch_ = 0;
  Step begun_in_;                      // the version in which the epoch has begun
  uint64_t counted_ = 0;               // samples of the epoch
  std::vector<SampleRange> returned_;  // and those that nobody has had
  std::vector<Lease> leases_;          // ascending by worker
};

}  // namespace pushpull
