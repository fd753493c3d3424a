// SPDX-License-Identifier: Apache-2.0
//
// A worker's membership, without threads of its own: everything runs on one executor, and what the
// program waits for is a PendingOperation. job.cc gives it a real thread, sockets and metrics; a
// test gives it a fake clock.
//
//   Join --> Welcome --> Register --> TensorsRegistered --> values in place --> PushPull ... -->
//   Leave
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/job.h"

#include "runtime/base/executor.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/membership/lasting_session.h"
#include "runtime/membership/session.h"
#include "runtime/transport/channel.h"
#include "runtime/worker/chunk_client.h"
#include "runtime/worker/pending_operation.h"
#include "runtime/worker/sample_share.h"
#include "runtime/worker/step_numbers.h"
#include "runtime/worker/worker_metrics.h"

namespace pushpull {

struct WorkerNodeOptions {
  std::string job;
  WorkerId worker;
  Incarnation incarnation;
  std::string metrics_address;  // for the status; may be empty
  Duration resend_after = std::chrono::seconds(2);
  // Codecs are left out where steps are faster without, unless the job is deterministic.
  bool bypasses_codecs = false;
  FaultPoint fault_point;  // for tests
  LastingSessionOptions session;
};

// Everything a worker uses and does not own; all of it outlives the node.
struct WorkerDependencies {
  Executor& executor;
  Transport& transport;
  SessionConnector& coordinator;
  WorkerMetrics& metrics;
};

// Public functions may be called from any thread and never block on the network, except where said.
// Destroyed on its executor, or when that has stopped.
class WorkerNode final : public SessionHandler, public ChunkClientObserver {
 public:
  WorkerNode(WorkerNodeOptions options, WorkerDependencies dependencies, Log log);
  ~WorkerNode() override;

  std::shared_ptr<PendingOperation> Join();
  // `tensors` and their values stay the caller's until the operation is done.
  std::shared_ptr<PendingOperation> Register(std::span<const TensorRegistration> tensors);
  absl::StatusOr<std::shared_ptr<PendingOperation>> PushPull(absl::string_view tensor,
                                                             std::span<const float> gradient,
                                                             std::span<float> out,
                                                             const PushOptions& options)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::shared_ptr<PendingOperation>> Pull(absl::string_view tensor,
                                                         std::span<float> out,
                                                         Step min_version) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status UseSamples(SampleSource source) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<StepSamples> Samples() const ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::shared_ptr<PendingOperation>> CommitSamples() ABSL_LOCKS_EXCLUDED(mu_);
  bool is_released() const;
  void TellToEnd() ABSL_LOCKS_EXCLUDED(mu_);
  int exit_code() const { return exit_code_.load(std::memory_order_relaxed); }
  std::shared_ptr<PendingOperation> Leave() ABSL_LOCKS_EXCLUDED(mu_);

  // After Join has been called.
  void Share(std::shared_ptr<const SharedMemory> memory);

  void ReportLoss(Step step, double loss, uint64_t samples);
  void ReportResult(absl::string_view name, double value);

  Step start_step() const ABSL_LOCKS_EXCLUDED(mu_);
  Step next_step() const ABSL_LOCKS_EXCLUDED(mu_);
  uint32_t workers() const ABSL_LOCKS_EXCLUDED(mu_);

  void OnMessage(ToMember message) override;
  void OnClosed(const absl::Status& why) override;

  void OnPushed(absl::string_view channel, uint64_t bytes) override;
  void OnPulled(absl::string_view channel, uint64_t bytes) override;
  void OnResend() override;
  void OnOverflow(const std::string& push, Codec codec, uint64_t values) override;
  void OnUnevenStep(Step step) override;
  void OnAnswered() override;
  void OnStepSettled(Step version) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnWaiting(const std::string& peer, const absl::Status& why, Duration lasted) override;
  void OnNotShared(const std::string& peer, const absl::Status& why) override;
  void OnWhole(bool is_whole) override;
  void OnCodecsTried(const CodecVerdict& verdict) override;
  void OnSynchronized(const SyncObservation& observation) override;
  void OnBroken(const absl::Status& why) override;

 private:
  // What the program's threads see of a tensor.
  struct Tensor {
    size_t index = 0;
    uint64_t num_values = 0;
    uint8_t priority = 0;
    bool keeps_value = true;
  };
  // Registered on the executor; the values are the caller's.
  struct Registration {
    std::vector<TensorSpec> specs;
    std::vector<std::span<float>> values;
    std::vector<uint8_t> priorities;
    std::vector<bool> keep_values;
    std::shared_ptr<PendingOperation> pending;
  };

  void On(const Welcome& message);
  void On(const SetServers& message);
  void On(const SetReplicas& message);
  void On(const ActivateView& message);
  void On(const HoldSteps& message) ABSL_LOCKS_EXCLUDED(mu_);
  void On(const ResumeSteps& message) ABSL_LOCKS_EXCLUDED(mu_);
  void On(const TensorsRegistered& message);
  void On(const Release& message);
  void On(const Capture& message);
  void On(const EndCapture& message);
  void On(const Restore&) {}
  void On(const Stop& message);
  void On(const Collect& message);
  void On(const CollectCopies& message);
  void On(const OfferCopies& message);
  void On(const RebuildShard&) {}
  void On(const Handover&) {}
  void On(const InstallTensors&) {}
  void On(const ProposeView&) {}

  void StartRegistration(Registration registration);
  bool must_go() const;
  // Whether the job has something left that this worker would have done.
  bool LeavesEarly() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The program has come to the end of its last step and wants to begin another.
  absl::Status RefusePush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Unless it has begun.
  void BeginLeave() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndBeforeTheFirstStep();
  void BringValues(const TensorsRegistered& message);
  void ValuesInPlace();
  // With backup workers others go on while values arrive: brings all to one version.
  void CatchUp();
  void FinishRegistration();
  void Break(const absl::Status& why);
  // Everything goes on in the mode of `view`, where that is another one.
  void TakeMode(const View& view) ABSL_LOCKS_EXCLUDED(mu_);
  void StartHeldPushes() ABSL_LOCKS_EXCLUDED(mu_);
  // The last step before the checkpoint has what codecs have left out.
  void SendWholeIfAsked();
  // As the program counts, without the numbers that changes of mode have skipped.
  Step ProgramStep(Step step) const;
  // Tells the coordinator, once, when all steps below the hold are done.
  void ReportIfDrained() ABSL_LOCKS_EXCLUDED(mu_);
  void SendHeartbeat();
  void SendStats();
  void Enter(const ActivateView& message);
  void FinishLeave();
  // The number after the last step that is answered whole.
  Step Progress() const;
  void Run(const TensorRequest& request);
  absl::StatusOr<Tensor> FindTensor(absl::string_view name, size_t values) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const WorkerNodeOptions options_;
  const WorkerDependencies dependencies_;
  const Log log_;

  // Confined to the executor.
  std::optional<LastingSession> session_;
  WantedSize wanted_;
  bool is_hold_void_ = false;             // until the next view: another coordinator is in charge
  std::optional<pushpull::Leave> leave_;  // that was sent
  std::optional<ChunkClient> client_;
  std::shared_ptr<PendingOperation> joining_;
  std::shared_ptr<PendingOperation> leaving_;
  bool may_leave_ = false;  // nobody waits for this worker any more
  std::optional<Registration> registration_;
  size_t values_missing_ = 0;  // tensors of the registration under way that are not here yet
  bool is_member_ = false;
  Step from_step_;
  Consistency consistency_;
  std::optional<HoldSteps> hold_;
  std::optional<Capture> capture_;  // that this worker has a part in, until it has said how it went
  bool has_reported_hold_ = false;
  absl::Status broken_;  // why nothing works any more
  bool has_reported_failure_ = false;
  bool has_complained_of_copies_ = false;
  WorkerStats stats_;
  std::vector<LossPoint> said_losses_;  // the newest of those in earlier messages
  Duration heartbeat_ = std::chrono::seconds(1);
  Executor::TimerId timer_ = 0;

  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Tensor> tensors_ ABSL_GUARDED_BY(mu_);
  StepNumbers numbers_ ABSL_GUARDED_BY(mu_);
  std::vector<TensorRequest> held_ ABSL_GUARDED_BY(mu_);  // pushes that must not begin yet
  size_t pushes_posted_ ABSL_GUARDED_BY(mu_) = 0;         // that begin when the executor gets there
  Step start_step_ ABSL_GUARDED_BY(mu_);
  uint64_t steps_skipped_ ABSL_GUARDED_BY(mu_) = 0;  // of the mode in force
  uint32_t workers_ ABSL_GUARDED_BY(mu_) = 0;
  bool divides_samples_ ABSL_GUARDED_BY(mu_) = true;
  uint64_t global_batch_ ABSL_GUARDED_BY(mu_) = 0;
  // Its value is written by the executor while an operation on it is under way.
  std::optional<SampleShare> samples_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<PendingOperation> leave_pending_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> is_released_ = false;           // by the coordinator
  std::atomic<bool> is_told_to_end_ = false;        // by the platform
  mutable std::atomic<bool> knows_of_end_ = false;  // the program, of either
  std::atomic<int> exit_code_ = 0;
};

}  // namespace pushpull
