// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

bool IsOver(const JobStatus& status) {
  return status.phase == JobPhase::kSucceeded || status.phase == JobPhase::kFailed;
}

}  // namespace

Coordinator::Coordinator(JobCoreOptions options,
                         Executor& executor,
                         SessionSink& sink,
                         CoordinatorMetrics& metrics,
                         CheckpointKeeper& checkpoints,
                         Log log)
    // With four checks per timeout, a silent peer is detected at most a quarter of it late.
    : tick_(std::min<Duration>(options.peer_timeout / 4, std::chrono::milliseconds(250))),
      executor_(executor),
      sink_(sink),
      metrics_(metrics),
      checkpoints_(checkpoints),
      log_(std::move(log)),
      core_(std::move(options)),
      self_(std::make_shared<Coordinator*>(this)) {
  timer_ = executor_.RunAfter(tick_, [this] { Tick(); });
}

Coordinator::~Coordinator() {
  executor_.Cancel(timer_);
}

absl::StatusOr<uint64_t> Coordinator::SaveCheckpoint() {
  PUSHPULL_RETURN_IF_ERROR(CarryOutIfOk(core_.SaveCheckpoint(executor_.Now())));
  return GetStatus().checkpoint.requested;
}

absl::StatusOr<uint64_t> Coordinator::StartTrace(const TraceRequest& request) {
  PUSHPULL_RETURN_IF_ERROR(CarryOutIfOk(core_.StartTrace(executor_.Now(), request)));
  return core_.traces().number();
}

void Coordinator::Leave(std::function<void()> done) {
  left_ = std::move(done);
  left_at_ = executor_.Now();
  CarryOut(core_.BeginLeave(left_at_));
  EndIfNotNeeded();
}

void Coordinator::EndIfNotNeeded() {
  if (!left_ || IsWaitedFor()) return;
  const bool is_noticed = executor_.Now() - left_at_ >= kNoticeTime;
  const bool goes_alone = is_noticed && !core_.takedown().IsOfWholeJob() && !core_.is_saving();
  if (core_.IsNeededNoMore() || goes_alone) std::exchange(left_, nullptr)();
}

bool Coordinator::IsWaitedFor() {
  return IsOver(GetStatus()) && !waiters_.IsEmpty(executor_.Now());
}

JobStatus Coordinator::AnswerWaiter(uint64_t waiter) {
  JobStatus status = GetStatus();
  waiters_.OnAsked(executor_.Now(), waiter, IsOver(status));
  return status;
}

void Coordinator::Tick() {
  CarryOut(core_.OnTick(executor_.Now()));
  EndIfNotNeeded();
  JobStatus status = GetStatus();
  metrics_.Update(status);
  if (observer_) observer_(std::move(status));
  timer_ = executor_.RunAfter(tick_, [this] { Tick(); });
}

void Coordinator::CarryOut(std::vector<Command> commands) {
  for (Command& command : commands) {
    if (auto* send = std::get_if<SendMessage>(&command)) {
      sink_.Send(send->session, std::move(send->message));
    } else if (const auto* close = std::get_if<CloseSession>(&command)) {
      sink_.Close(close->session);
    } else if (const auto* line = std::get_if<Announce>(&command)) {
      line->is_problem ? log_.Warning(line->text) : log_.Info(line->text);
    } else if (auto* save = std::get_if<SaveManifest>(&command)) {
      Save(std::move(*save));
    } else if (const auto* clear = std::get_if<ClearCheckpoint>(&command)) {
      Clear(*clear);
    } else if (const auto* probe = std::get_if<ProbeFolder>(&command)) {
      Probe(*probe);
    } else if (const auto* note = std::get_if<NoteStep>(&command)) {
      checkpoints_.Note(*note);
    } else if (const auto* step = std::get_if<StepDown>(&command)) {
      step_down_(step->why);
    }
  }
}

void Coordinator::Save(SaveManifest command) {
  const uint64_t attempt = command.attempt;
  checkpoints_.Save(std::move(command),
                    [&executor = executor_, attempt, self = std::weak_ptr<Coordinator*>(self_)](
                        const absl::Status& written, const absl::Status& pruned) {
                      executor.Post([self, attempt, written, pruned] {
                        if (const auto to = self.lock()) (*to)->OnSaved(attempt, written, pruned);
                      });
                    });
}

void Coordinator::OnSaved(uint64_t attempt,
                          const absl::Status& written,
                          const absl::Status& pruned) {
  CarryOut(core_.OnManifest(executor_.Now(), attempt, written));
  if (written.ok()) metrics_.ObserveCheckpoint(FromSeconds(GetStatus().checkpoint.seconds));
  if (!pruned.ok()) log_.Warning("old checkpoints cannot be removed", {{"why", pruned.message()}});
}

void Coordinator::Probe(const ProbeFolder& command) {
  checkpoints_.Probe(
      command.folder,
      [&executor = executor_, self = std::weak_ptr<Coordinator*>(self_)](const absl::Status& it) {
        executor.Post([self, it] {
          if (const auto to = self.lock())
            (*to)->CarryOut((*to)->core_.OnProbed((*to)->executor_.Now(), it));
        });
      });
}

void Coordinator::Clear(const ClearCheckpoint& command) {
  checkpoints_.Clear(command,
                     [&executor = executor_,
                      attempt = command.attempt,
                      self = std::weak_ptr<Coordinator*>(self_)] {
                       executor.Post([self, attempt] {
                         if (const auto to = self.lock())
                           (*to)->CarryOut((*to)->core_.OnCleared((*to)->executor_.Now(), attempt));
                       });
                     });
}

}  // namespace pushpull
