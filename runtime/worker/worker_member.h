// SPDX-License-Identifier: Apache-2.0
//
// A worker's membership on its executor: the session with the coordinator, the chunk client, and
// the decisions between the two. The program's threads use worker_node.h.
//
//   Open --> Welcome --> StartRegistration --> TensorsRegistered --> values in place --> Run ...
//   --> SendLeave
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"

#include "runtime/base/executor.h"
#include "runtime/base/log.h"
#include "runtime/membership/reconnecting_session.h"
#include "runtime/membership/session.h"
#include "runtime/transport/channel.h"
#include "runtime/worker/capture_part.h"
#include "runtime/worker/chunk_client.h"
#include "runtime/worker/departure.h"
#include "runtime/worker/job_member.h"
#include "runtime/worker/operation_table.h"
#include "runtime/worker/pending_operation.h"
#include "runtime/worker/registration.h"
#include "runtime/worker/state_saves.h"
#include "runtime/worker/worker_metrics.h"
#include "runtime/worker/worker_reports.h"
#include "runtime/worker/worker_statistics.h"

namespace pushpull {

// Thread-confined to its executor.
class WorkerMember final : public JobMember, private SessionHandler, private ChunkClientObserver {
 public:
  // `operations`, `state` and `departure` outlive this object.
  WorkerMember(WorkerNodeOptions options,
               WorkerDependencies dependencies,
               OperationTable& operations,
               StateSaves& state,
               Departure& departure,
               Log log);
  ~WorkerMember() override;

  void Open(std::shared_ptr<PendingOperation> joining) override;
  void StartRegistration(std::shared_ptr<Registration> registration) override;
  void RunDue() override;
  void StartExchange(std::shared_ptr<ExchangeOperation> operation) override;
  void OnStateDecided() override { capture_.ReportIfKnown(); }
  void OnEndRequested() override;
  void SendLeave(std::shared_ptr<PendingOperation> leaving, Step end_step, bool is_early) override;
  void Share(std::shared_ptr<const SharedMemory> memory) override {
    client_->Share(std::move(memory));
  }
  WorkerStatistics& statistics() override { return reports_.statistics(); }

 private:
  void OnMessage(ToMember message) override;
  void OnClosed(const absl::Status& why) override;

  void OnStepSettled(Step version) override;
  void OnUnevenStep(Step step) override;
  void OnAnswered() override {
    reports_.activity().OnAnswered(dependencies_.executor.Now());
    ReportIfDrained();
  }
  void OnWhole(bool is_whole) override { capture_.SetGradients(is_whole); }
  void OnBroken(const absl::Status& why) override { Break(why); }

  void On(const Welcome& message);
  void On(const SetServers& message);
  void On(const SetReplicas& message);
  void On(const ActivateView& message);
  void On(const HoldSteps& message);
  void On(const ResumeSteps& message);
  void On(const TensorsRegistered& message);
  void On(const Release& message);
  void On(const Capture& message);
  void On(const EndCapture& message);
  void On(const Stop& message);
  void On(const Collect& message);
  void On(const CollectCopies& message);
  void On(const OfferCopies& message);
  void On(const TraceSteps& message);
  void On(const StepWaits& message) { operations_.awaited()->Set(message); }
  void On(const SetGroup& message) { client_->joint().SetGroup(message); }
  // Messages for servers or for workers of a ring.
  template <typename Message>
  void On(const Message& /*message*/) {}

  void OnValuesInPlace();
  // With backup workers, others continue while values arrive: brings all chunks to one version.
  void CatchUp();
  void FinishRegistration();

  void Run(const TensorRequest& request);
  void CountSamples(const TensorRequest& request);

  // Ends a worker that does not take part in the job yet.
  void EndBeforeFirstStep();
  void FinishLeave();
  void Break(const absl::Status& why);

  void Enter(const View& view);
  void TakeMode(const View& view);
  // If a capture is under way, makes the gradients of the last step before the checkpoint include
  // what codecs have left out.
  void SendWholeIfAsked();
  // Notifies the coordinator, once, when all steps below the hold are done.
  void ReportIfDrained();
  WorkerProgress ReportedProgress() const;

  // Whether its values are in place.
  bool has_begun() const { return is_member_ && registration_ == nullptr; }
  // One more than the last step that is answered completely.
  Step Progress() const;
  // As the program counts, without the numbers skipped by mode changes.
  Step ProgramStep(Step step) const;

  const WorkerNodeOptions options_;
  const WorkerDependencies dependencies_;
  const Log log_;

  OperationTable& operations_;
  StateSaves& state_;
  Departure& departure_;

  std::optional<ReconnectingSession> session_;
  WorkerReports reports_;
  std::optional<ChunkClient> client_;
  std::shared_ptr<PendingOperation> joining_;
  std::shared_ptr<Registration> registration_;  // under way
  std::shared_ptr<PendingOperation> leaving_;
  std::optional<pushpull::Leave> leave_;  // as sent
  bool may_leave_ = false;                // nobody waits for this worker any more
  bool is_member_ = false;
  Step from_step_;
  Consistency consistency_;
  DesiredSize desired_;
  std::optional<HoldSteps> hold_;
  bool is_hold_outdated_ = false;  // until the next view: another coordinator is in charge
  bool has_reported_hold_ = false;
  CapturePart capture_{state_, [this](Captured report) { session_->Send(std::move(report)); }};
  absl::Status broken_;  // why nothing works any more
  bool has_reported_failure_ = false;
  uint64_t undecided_samples_ = 0;  // of the open step, if the leading chunk decides who counts
};

}  // namespace pushpull
