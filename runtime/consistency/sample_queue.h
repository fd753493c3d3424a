// SPDX-License-Identifier: Apache-2.0
//
// The job's position in its data set: which samples the current step uses, which worker has which
// of them, and which were returned because a worker did not finish. It is the value of a separate
// chunk (docs/protocol.md section 4, "Data positions"): version t is the state before step t, and
// the chunk's primary turns it into version t + 1 when step t is complete. So the position is
// committed with the step, and replicated, moved and saved like any parameter. Pure.
//
//   version t:  position, members --ShareOf--> each member's samples of step t
//   complete:   who contributed, who comes next --Advance--> version t + 1
//
// A step takes returned samples first, then fresh ones. An epoch is over when all of its samples
// have counted, so no epoch overlaps the next. Epochs follow each other without end: how many there
// are is up to each worker's program (worker/sample_share.h), so that a job that is resumed may
// have more of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "pushpull/samples.h"

#include "runtime/base/ids.h"
#include "runtime/base/wire_bytes.h"

namespace pushpull {

// The tensor whose one chunk holds the queue. Programs cannot register the name.
inline constexpr absl::string_view kSampleQueueTensor = "pushpull.samples";

// What a worker says of its samples, as the weight of its push to that tensor.
enum class SampleReport : uint8_t {
  kLeaves = 0,  // they are done, and it wants no more
  kDone = 1,    // they are done, and it wants the next
  kKeeps = 2,   // they are not done, and it goes on with them
  // It has none as far as it knows. A lease may be on the way to it, which it has not begun.
  kAsks = 3,
  kLeavesWithout = 4,
};
constexpr bool AreDone(SampleReport report) {
  return report == SampleReport::kDone || report == SampleReport::kLeaves;
}
constexpr bool WantsMore(SampleReport report) {
  return report != SampleReport::kLeaves && report != SampleReport::kLeavesWithout;
}
// Added to the weight: the worker must leave or stop, and the push is answered though there may be
// no samples for it.
inline constexpr double kAnswerAtOnce = 8;
// Another number is a program's error, and says the least.
constexpr SampleReport ReportOf(double weight) {
  if (weight >= kAnswerAtOnce) weight -= kAnswerAtOnce;
  for (const SampleReport report : {SampleReport::kLeaves,
                                    SampleReport::kDone,
                                    SampleReport::kKeeps,
                                    SampleReport::kLeavesWithout})
    if (weight == static_cast<double>(report)) return report;
  return SampleReport::kAsks;
}

// Workers push the size of their data set as a learning rate: 1 to 2^53, up to where a double has
// all integers.
constexpr bool IsNumberOfSamples(double number) {
  return number >= 1 && number <= 9007199254740992;
}

// A source within the value's bytes.
void PutSource(const SampleSource& source, ByteWriter& writer);
SampleSource GetSource(ByteReader& reader);

// Thread-compatible value.
class SampleQueue {
 public:
  // Size of the encoded queue, whatever it holds.
  static constexpr size_t kBytes = 4096;
  // Worker indices below this can be members.
  static constexpr uint32_t kWorkersMax = 4096;
  // Maximum number of runs of returned samples that wait to be handed out again. More are dropped
  // and counted, which takes the death of over a hundred workers in one step.
  static constexpr size_t kReturnedMax = 200;

  // Before step 0, without members.
  explicit SampleQueue(const SampleSource& source) : source_(source) {}
  // Before `step`, without members: of the epoch these samples are left.
  SampleQueue(const SampleSource& source, Step step, uint64_t epoch, std::vector<SampleRange> left);

  // kDataLoss: not a queue, or one from a newer version of the program.
  static absl::StatusOr<SampleQueue> Decode(std::span<const std::byte> bytes);
  // kBytes long.
  std::vector<std::byte> Encode() const;

  // The workers among whom the step is divided.
  void SetMembers(std::vector<WorkerId> members);

  // The samples of `worker` in `step`; none if it is not a member or `step` is not the current one.
  StepSamples ShareOf(WorkerId worker, Step step) const;

  // The step is complete: workers in `counted` have done their samples, those of the other members
  // are returned, and the next step is divided among `next`.
  void Advance(std::span<const WorkerId> counted, std::vector<WorkerId> next);

  // Where the current step is too small for a share of each member, divides it among `first`, if
  // one of them is a member: with backup workers those who were fast in the step before, so that no
  // step waits for one that was not.
  void PreferInSmallStep(std::span<const WorkerId> first);

  // The size of the data set from the next epoch on; of this one if it has not begun. Workers push
  // it as the learning rate, which this tensor has no other use for. Ignored unless 1 to 2^53.
  void SetNumSamples(double num_samples);

  // Sets the number of samples per step, over all members together, from the next step to be
  // divided on; above 0.
  void SetGlobalBatch(uint64_t batch);

  // All members have done the step and continue with the next.
  void AdvanceAll();

  // Samples of the epoch that have not counted before the current step.
  std::vector<SampleRange> Left() const;

  Step step() const { return step_; }
  uint64_t epoch() const { return epoch_; }
  // Of this epoch. The number of epochs is that of the program that began the job.
  const SampleSource& source() const { return source_; }
  // Samples of a full step, over all members.
  uint64_t batch() const {
    return source_.is_global_batch ? source_.batch : source_.batch * members_.size();
  }
  // Samples dropped because of kReturnedMax, since the start.
  uint64_t dropped() const { return dropped_; }

 private:
  // All of the step's samples, in the order in which they are divided.
  std::vector<SampleRange> StepRanges() const;
  std::vector<SampleRange> RangesOf(size_t member, const std::vector<SampleRange>& step) const;
  uint64_t NumSharers(uint64_t samples) const;
  void Return(std::vector<SampleRange> ranges);
  bool IsEpochOver() const;
  void EndEpochIfOver();

  SampleSource source_;
  Step step_;
  uint64_t epoch_ = 0;
  uint64_t position_ = 0;  // the epoch's first sample not handed out before this step
  uint64_t dropped_ = 0;
  std::vector<SampleRange> returned_;  // in the epoch
  std::vector<WorkerId> members_;      // ascending
};

}  // namespace pushpull
