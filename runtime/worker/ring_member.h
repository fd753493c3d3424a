// SPDX-License-Identifier: Apache-2.0
//
// A worker of a job in mode AllReduce, on its executor: the session with the coordinator, and the
// ring (ring_client.h) that takes the steps instead of servers.
//
//   Open --> Welcome --> StartRegistration --> TensorsRegistered, FormRing --> values in place
//   --> steps ... --> SendLeave --> a view without this worker
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/log.h"
#include "runtime/membership/reconnecting_session.h"
#include "runtime/membership/session.h"
#include "runtime/worker/departure.h"
#include "runtime/worker/job_member.h"
#include "runtime/worker/operation_table.h"
#include "runtime/worker/ring_client.h"
#include "runtime/worker/worker_reports.h"

namespace pushpull {

// Thread-confined to its executor.
class RingMember final : public JobMember, private SessionHandler, private RingClientObserver {
 public:
  // `operations` and `departure` outlive this object. `options.ring` is handed over to it.
  RingMember(WorkerNodeOptions options,
             WorkerDependencies dependencies,
             OperationTable& operations,
             Departure& departure,
             Log log);
  ~RingMember() override;

  void Open(std::shared_ptr<PendingOperation> joining) override;
  void StartRegistration(std::shared_ptr<Registration> registration) override;
  void RunDue() override;
  void StartExchange(std::shared_ptr<ExchangeOperation> operation) override;
  void OnEndRequested() override;
  void SendLeave(std::shared_ptr<PendingOperation> leaving, Step end_step, bool is_early) override;
  void Share(std::shared_ptr<const SharedMemory> /*memory*/) override {}
  WorkerStatistics& statistics() override { return reports_.statistics(); }

 private:
  void OnMessage(ToMember message) override;
  void OnClosed(const absl::Status& why) override;

  void OnRingMessage(FromMember message) override;
  void OnRingStep(Step next) override;
  void OnRingOverflow(const TensorSpec& tensor, uint64_t values) override;
  void OnRingTrial(const EndedRingTrial& ended) override;
  void OnRingAnswered() override { reports_.activity().OnAnswered(dependencies_.executor.Now()); }
  void OnRingBroken(const absl::Status& why) override;

  void On(const Welcome& message);
  void On(const Collect& message);
  void On(const SetServers& message);
  void On(const ActivateView& message);
  void On(const TensorsRegistered& message);
  void On(const Release& message);
  void On(const Stop& message);
  void On(const TraceSteps& message);
  void On(const StepWaits& message) { operations_.awaited()->Set(message); }
  void On(const Capture& message) { client_->OnCapture(message); }
  void On(const EndCapture& message) { client_->OnEndCapture(message.attempt); }
  void On(const StopRing& message) { client_->OnStop(message); }
  void On(const FormRing& message) { client_->OnForm(message); }

  void Run(const TensorRequest& request);
  void FinishRegistration();
  // Ends a worker that does not take part in the job yet.
  void EndBeforeFirstStep();
  void Break(const absl::Status& why);
  // Reports what a coordinator must know of this worker and has not heard yet.
  void Introduce();
  WorkerProgress ReportedProgress() const;

  // Whether its values are in place.
  bool has_begun() const { return is_member_ && registration_ == nullptr; }

  const WorkerNodeOptions options_;
  const WorkerDependencies dependencies_;
  const Log log_;
  OperationTable& operations_;
  Departure& departure_;
  const RequestTable no_chunks_;
  std::optional<ReconnectingSession> session_;
  WorkerReports reports_;
  std::optional<RingClient> client_;
  std::shared_ptr<PendingOperation> joining_;
  std::shared_ptr<Registration> registration_;  // under way
  std::vector<TensorSpec> specs_;               // as registered
  std::shared_ptr<PendingOperation> leaving_;
  std::optional<pushpull::Leave> leave_;  // as sent
  std::set<std::string> overflowed_;      // tensors already warned about
  bool is_member_ = false;
  DesiredSize desired_;
  absl::Status broken_;  // why nothing works any more
};

}  // namespace pushpull
