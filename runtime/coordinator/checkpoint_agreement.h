// SPDX-License-Identifier: Apache-2.0
//
// When a running job is saved, at which step, and how a save ends (docs/protocol.md section 8).
//
//   idle --1--> capturing --2--> writing the manifest --3--> idle
//                 |   ^                 |
//                 4   +--- next step ---+- 5 --> clearing --> idle
//                 +--------------------------------^
//
// 1 Every `every`, on request, and at the end of the job. A request during a save starts another
//   save after it.
// 2 Every chunk is in a file of some server (mode AllReduce: worker), and the values are complete:
//   no worker holds a residual from before the step (docs/decisions/0038-error-feedback.md).
// 3 The manifest is written: the checkpoint is complete.
// 4 A chunk or a worker was past the step, a chunk moved to another server at the wrong moment, or
//   a worker of a ring has gone with its part: the attempt's files are removed and a higher step is
//   tried. Or one of them cannot write: the save is abandoned.
// 5 The manifest cannot be written, or a deadline has passed: the save is abandoned.
//
// The step must be above every completed one, which nobody knows exactly while training continues:
// the first guess is based on heartbeats, a server that has passed it reports how far it is, and
// each further attempt doubles the margin. A failed save is logged and counted, and never fails the
// job.
//
// The first save may be due long after the start. So the coordinator writes to the folder when it
// starts, and retries until that succeeds: a volume that is not writable is reported at once. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/coordinator/command.h"
#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

struct CheckpointPolicy {
  std::string folder;  // the job's own; absolute, the same for all servers and the coordinator
  CheckpointOwner owner = {};  // the job
  Duration every = std::chrono::minutes(10);
  uint32_t keep = 3;
  // Per attempt: from the order until all chunks of the step are written.
  Duration attempt_timeout = std::chrono::minutes(30);
  // Number of the first attempt; random, so that no earlier job has used the same numbers.
  uint64_t first_attempt = 1;
  // Interval between probes of a folder that is not writable.
  Duration probe_every = std::chrono::seconds(30);
};

// Who captures chunks: the servers or, in mode AllReduce, the workers.
using Capturer = std::variant<ServerId, WorkerId>;

// What the caller must do after a change, in this order.
struct CheckpointChange {
  std::optional<EndCapture> end;   // to every capturer, and to the workers that take part
  std::optional<Capture> capture;  // likewise
  // The caller adds job, mode and tensors, writes it and then calls OnManifest.
  std::optional<SaveManifest> manifest;
  std::optional<ClearCheckpoint> clearing;  // of a failed attempt; OnCleared must follow
  std::optional<ProbeFolder> probe;         // OnProbed must follow
  std::string said;                         // for the log
  bool is_problem = false;
};

// Thread-compatible.
class CheckpointAgreement {
 public:
  // The caller's current view of the job.
  struct Job {
    SteadyTime now;
    Step highest_version;     // of any chunk, as far as known
    uint64_t num_chunks = 0;  // of all tensors
    bool is_over = false;     // no further step will be completed
    ChunkVersions versions = ChunkVersions::kOfOneStep;
  };

  explicit CheckpointAgreement(CheckpointPolicy policy)
      : policy_(std::move(policy)), next_attempt_(policy_.first_attempt) {}

  // From now on saves are due every `every`.
  void Start(SteadyTime now) { next_due_ = now + policy_.every; }
  // Saves as soon as possible; CheckpointStatus::requested is then the number of this save.
  CheckpointChange Request(const Job& job);
  CheckpointChange OnTick(const Job& job);
  // `capturers`: those that are there, each of which has been sent capture().
  CheckpointChange SetCapturers(const Job& job, std::set<Capturer> capturers);
  CheckpointChange OnCaptured(const Job& job, Capturer capturer, const Captured& captured);
  // The attempt under way cannot be completed: a capturer has gone, and nobody else has its part.
  CheckpointChange OnPartLost();
  // `workers`: those that may hold residuals, each of which has been sent capture().
  CheckpointChange SetWorkers(const Job& job, std::set<WorkerId> workers);
  CheckpointChange OnWhole(const Job& job, WorkerId worker, const Captured& word);
  CheckpointChange OnManifest(const Job& job, uint64_t attempt, const absl::Status& written);
  CheckpointChange OnCleared(const Job& job, uint64_t attempt);
  CheckpointChange OnProbed(const Job& job, const absl::Status& written);
  // No further step will be completed: saves the last one, unless it is already saved.
  CheckpointChange EndJob(const Job& job);
  // The step that the attempt under way waits for will never be taken, for this reason.
  CheckpointChange Abandon(const std::string& why);
  // The job has failed: saves nothing more.
  CheckpointChange GiveUp();

  // The capture under way, which must also be sent to a member that has just registered.
  std::optional<Capture> capture() const {
    return state_ == State::kCapturing ? std::optional<Capture>(order_) : std::nullopt;
  }
  bool is_idle() const { return state_ == State::kIdle; }
  const CheckpointStatus& status() const { return status_; }
  void SetRestored(Step step) { status_.restored_step = step; }

 private:
  enum class State { kIdle, kCapturing, kWriting, kClearing };

  bool IsSaved(const Job& job) const;
  void ProbeIfDue(SteadyTime now);
  void Begin(const Job& job);
  void Try(const Job& job);
  void TryAgain();
  void ConcludeIfComplete(const Job& job);
  bool AreGradientsWhole() const;
  void Fail(const std::string& why);
  void Clear();
  void Finish(const Job& job);
  std::string DescribeMissing() const;

  const CheckpointPolicy policy_;
  uint64_t next_attempt_;
  std::set<Capturer> capturers_;
  std::set<WorkerId> workers_;
  std::optional<SteadyTime> next_due_;
  CheckpointStatus status_;
  std::optional<SteadyTime> next_probe_ = SteadyTime{};  // none: the folder is writable
  bool is_probing_ = false;

  State state_ = State::kIdle;
  uint64_t under_way_ = 0;  // number of the save
  SteadyTime began_at_;     // the save
  SteadyTime deadline_;     // of the attempt
  uint64_t refusals_ = 0;
  Step reached_;              // by some chunk, as a server reported
  bool is_given_up_ = false;  // and its files are being removed
  Capture order_;
  std::set<Capturer> reported_;
  std::set<WorkerId> whole_;
  std::set<ChunkId> covered_;
  std::vector<ChunkFileSummary> files_;
  CheckpointChange change_;  // by the call under way
};

}  // namespace pushpull
