// SPDX-License-Identifier: Apache-2.0
//
// The acting half of the coordinator: passes events to JobCore, which decides, and carries out the
// commands it returns.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/executor.h"
#include "runtime/base/log.h"
#include "runtime/coordinator/checkpoint_keeper.h"
#include "runtime/coordinator/coordinator_metrics.h"
#include "runtime/coordinator/job_core.h"
#include "runtime/coordinator/waiters.h"
#include "runtime/membership/session.h"

namespace pushpull {

// Thread-confined to its executor, constructor and destructor included.
class Coordinator final : public SessionEvents {
 public:
  // Until all pods of a deleted job have been notified.
  static constexpr Duration kNoticeTime = std::chrono::seconds(5);

  // `executor`, `sink`, `metrics` and `checkpoints` are used, not owned, and outlive this object.
  Coordinator(JobCoreOptions options,
              Executor& executor,
              SessionSink& sink,
              CoordinatorMetrics& metrics,
              CheckpointKeeper& checkpoints,
              Log log);
  ~Coordinator() override;

  // To be called before the first event. `step_down` ends the process so that another coordinator
  // takes over; it is called at most once and must not destroy this object.
  void SetStepDown(std::function<void(const std::string& why)> step_down) {
    step_down_ = std::move(step_down);
  }

  // To be called before the first event. `observer` receives the job's status several times a
  // second.
  void SetObserver(std::function<void(JobStatus)> observer) { observer_ = std::move(observer); }

  void OnMessage(SessionId session, FromMember message) override {
    CarryOut(core_.OnMessage(executor_.Now(), session, message));
  }
  void OnClosed(SessionId session, const absl::Status& why) override {
    CarryOut(core_.OnClosed(executor_.Now(), session, why));
  }
  JobStatus GetStatus() override { return core_.Status(executor_.Now()); }
  JobStatus AnswerWaiter(uint64_t waiter) override;
  absl::Status Resize(const JobSize& size) override {
    return CarryOutIfOk(core_.Resize(executor_.Now(), size));
  }
  absl::StatusOr<uint64_t> SaveCheckpoint() override;
  absl::Status SetMode(const ModeChange& change) override {
    return CarryOutIfOk(core_.SetMode(executor_.Now(), change));
  }

  absl::StatusOr<uint64_t> StartTrace(const TraceRequest& request) override;
  absl::StatusOr<TraceParts> TakeTrace(uint64_t number, uint64_t from) override {
    return core_.traces().Take(number, from);
  }

  // The process should end: calls `done` once, as soon as no member needs this coordinator any more
  // and waiting commands know how the job ended. Until then the coordinator keeps running: for
  // kNoticeTime or, if the whole job is being taken down, until its last step is saved.
  void Leave(std::function<void()> done);
  // The job is over, but some commands that wait for it do not know yet.
  bool IsWaitedFor();
  // To be called before destruction: tells members to end unless another coordinator may follow.
  void Stop(JobCore::Successor successor) { CarryOut(core_.OnStop(successor)); }

 private:
  void Tick();
  void EndIfNotNeeded();
  void CarryOut(std::vector<Command> commands);
  absl::Status CarryOutIfOk(absl::StatusOr<std::vector<Command>> commands) {
    if (commands.ok()) CarryOut(std::move(*commands));
    return commands.status();
  }
  void Save(SaveManifest command);
  void OnSaved(uint64_t attempt, const absl::Status& written, const absl::Status& pruned);
  void Clear(const ClearCheckpoint& command);
  void Probe(const ProbeFolder& command);

  const Duration tick_;
  Executor& executor_;
  SessionSink& sink_;
  CoordinatorMetrics& metrics_;
  CheckpointKeeper& checkpoints_;
  std::function<void(const std::string& why)> step_down_;
  std::function<void(JobStatus)> observer_;
  const Log log_;
  JobCore core_;
  Waiters waiters_;
  Executor::TimerId timer_ = 0;
  std::function<void()> left_;  // set by Leave until it is called
  SteadyTime left_at_;
  std::shared_ptr<Coordinator*> self_;  // expires with the coordinator, for posted tasks
};

}  // namespace pushpull
