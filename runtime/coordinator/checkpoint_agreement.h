// SPDX-License-Identifier: Apache-2.0
//
// When a running job is saved, at which step, and how that ends (docs/protocol.md section 8).
//
//   idle --1--> capturing --2--> writing the manifest --3--> idle
//                 |   ^                 |
//                 4   +--- next step ---+- 5 --> clearing --> idle
//                 +--------------------------------^
//
// 1 Every `every`, on request, and at the end of the job. A request during a save gets a save of
//   its own after it.
// 2 Every chunk is in a file of some server, and the values are complete: no worker has kept back a
//   part of the gradients before (docs/decisions/0038-error-feedback.md).
// 3 The manifest is written: it is a checkpoint.
// 4 A chunk or a worker was past the step, or a chunk moved to another server at the wrong moment:
//   the attempt's files are removed and a higher step is tried. Or a server cannot write: the save
//   is abandoned.
// 5 The manifest cannot be written, or a deadline has passed: the save is abandoned.
//
// The step must lie above every completed one, which nobody knows exactly while training continues:
// the first guess is from heartbeats, a server that has passed it reports how far it is, and each
// further attempt leaves twice the margin of the one before. A failed save is logged and counted,
// and never fails the job.
//
// The first save may be due long after the start. So the coordinator writes to the folder when it
// starts, and again until that succeeds: a volume that cannot be written is reported at once. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/coordinator/command.h"
#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

struct CheckpointPolicy {
  std::string folder;  // the job's own, absolute; all servers and the coordinator see it there
  CheckpointOwner owner = {};  // the job
  Duration every = std::chrono::minutes(10);
  uint32_t keep = 3;
  // For one attempt: from the order until all chunks of the step are written.
  Duration attempt_timeout = std::chrono::minutes(30);
  // Number of the first attempt; drawn at random, so that no earlier job has used the numbers.
  uint64_t first_attempt = 1;
  // Between two probes of a folder that cannot be written.
  Duration probe_every = std::chrono::seconds(30);
};

// What must be done after a change, in this order.
struct CheckpointChange {
  std::optional<EndCapture> end;   // to every server, and to the workers that have a part in it
  std::optional<Capture> capture;  // likewise
  // To be completed with job, mode and tensors and written; OnManifest has to follow.
  std::optional<SaveManifest> manifest;
  std::optional<ClearCheckpoint> clearing;  // of a failed attempt; OnCleared has to follow
  std::optional<ProbeFolder> probe;         // OnProbed has to follow
  std::string said;                         // for the log
  bool is_problem = false;
};

// Thread-compatible.
class CheckpointAgreement {
 public:
  // The caller's view of the job at the moment.
  struct Job {
    SteadyTime now;
    Step highest_version;     // of any chunk, as far as is known
    uint64_t num_chunks = 0;  // of all tensors
    bool is_over = false;     // no step will be completed any more
    ChunkVersions versions = ChunkVersions::kOfOneStep;
  };

  explicit CheckpointAgreement(CheckpointPolicy policy)
      : policy_(std::move(policy)), next_attempt_(policy_.first_attempt) {}

  // From now on saves are due every `every`.
  void Start(SteadyTime now) { next_due_ = now + policy_.every; }
  // Saves as soon as possible; CheckpointStatus::requested is then the number of this save.
  CheckpointChange Request(const Job& job);
  CheckpointChange OnTick(const Job& job);
  // The registered servers; each of them has been sent capture().
  CheckpointChange SetServers(const Job& job, std::set<ServerId> servers);
  CheckpointChange OnCaptured(const Job& job, ServerId server, const Captured& captured);
  // The workers that may keep back a part of gradients; each of them has been sent capture().
  CheckpointChange SetWorkers(const Job& job, std::set<WorkerId> workers);
  CheckpointChange OnWhole(const Job& job, WorkerId worker, const Captured& word);
  CheckpointChange OnManifest(const Job& job, uint64_t attempt, const absl::Status& written);
  CheckpointChange OnCleared(const Job& job, uint64_t attempt);
  CheckpointChange OnProbed(const Job& job, const absl::Status& written);
  // No step will be completed any more: saves the last one, unless it is saved.
  CheckpointChange EndJob(const Job& job);
  // The job has failed: nothing is saved any more.
  CheckpointChange GiveUp();

  // The capture under way, which a member that has just registered must be sent, too.
  std::optional<Capture> capture() const {
    return state_ == State::kCapturing ? std::optional<Capture>(order_) : std::nullopt;
  }
  bool is_idle() const { return state_ == State::kIdle; }
  const CheckpointStatus& status() const { return status_; }
  void SetRestored(Step step) { status_.restored_step = step; }

 private:
  enum class State { kIdle, kCapturing, kWriting, kClearing };

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
  std::set<ServerId> servers_;
  std::set<WorkerId> workers_;
  std::optional<SteadyTime> next_due_;
  CheckpointStatus status_;
  std::optional<SteadyTime> next_probe_ = SteadyTime{};  // none: the folder can be written
  bool is_probing_ = false;

  State state_ = State::kIdle;
  uint64_t under_way_ = 0;  // number of the save
  SteadyTime began_at_;     // the save
  SteadyTime deadline_;     // of the attempt
  uint64_t refusals_ = 0;
  Step reached_;              // by some chunk, as a server reported
  bool is_given_up_ = false;  // and what there is of it is being cleared away
  Capture order_;
  std::set<ServerId> reported_;
  std::set<WorkerId> whole_;
  std::set<ChunkId> covered_;
  std::vector<ChunkFileSummary> files_;
  CheckpointChange change_;  // by the call under way
};

}  // namespace pushpull
