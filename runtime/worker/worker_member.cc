// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/worker_member.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "runtime/worker/sample_share.h"

namespace pushpull {

WorkerMember::WorkerMember(WorkerNodeOptions options,
                           WorkerDependencies dependencies,
                           OperationTable& operations,
                           StateSaves& state,
                           Departure& departure,
                           Log log)
    : options_(std::move(options)),
      dependencies_(dependencies),
      log_(std::move(log)),
      operations_(operations),
      state_(state),
      departure_(departure),
      reports_(
          options_.worker,
          dependencies.executor,
          dependencies.metrics,
          [this] { return ReportedProgress(); },
          [this](FromMember message) {
            if (session_->is_open()) session_->Send(std::move(message));
          }) {}

WorkerMember::~WorkerMember() = default;

void WorkerMember::Open(std::shared_ptr<PendingOperation> joining) {
  joining_ = std::move(joining);
  client_.emplace(
      ChunkClientOptions{.hello = {options_.job, options_.worker, options_.incarnation, 0},
                         .resend_after = options_.resend_after,
                         .fault_point = options_.fault_point,
                         .group_port = options_.group_port},
      ChunkClientDependencies{
          dependencies_.transport, dependencies_.executor, statistics(), *this, log_});
  const auto registration = [this](Term promised) {
    return RegistrationOf(options_, promised, is_member_);
  };
  session_.emplace(options_.session,
                   dependencies_.coordinator,
                   dependencies_.executor,
                   static_cast<SessionHandler&>(*this),
                   registration,
                   log_);
  reports_.SetPeriod(WorkerReports::kBeforeWelcome);
  if (departure_.is_end_requested()) EndBeforeFirstStep();
}

// ---- requests ----

void WorkerMember::Run(const TensorRequest& request) {
  if (!broken_.ok()) {
    request.pending->Fail(broken_);
    if (std::exchange(has_reported_failure_, true)) return;
    session_->Send(Failure{absl::UnavailableError(request.pending->what())});
    return;
  }
  CountSamples(request);
  reports_.activity().OnRequest(request, dependencies_.executor.Now());
  client_->Start(request);
}

// Samples of a dropped gradient go back to the sample queue, and count for the worker that trains
// on them.
void WorkerMember::CountSamples(const TensorRequest& request) {
  if (request.type == FrameType::kPull || request.tensor != 0) return;
  const auto samples = static_cast<uint64_t>(request.weight);
  if (client_->step().is_led() && IsPush(request.type)) {
    undecided_samples_ = samples;
  } else {
    statistics().AddSamples(samples);
  }
}

void WorkerMember::RunDue() {
  const std::vector<TensorRequest> due = operations_.TakeDue();
  for (const TensorRequest& request : due) Run(request);
  operations_.OnStarted(due.size());
  if (!consistency_.is_sync() && (hold_ || departure_.must_leave())) client_->EndWaitForSamples();
  ReportIfDrained();
}

void WorkerMember::StartExchange(std::shared_ptr<ExchangeOperation> operation) {
  if (!broken_.ok()) return operation->pending.Fail(broken_);
  if (!has_begun()) {
    return operation->pending.Fail(
        absl::FailedPreconditionError("register the tensors before the first collective"));
  }
  reports_.activity().OnExchange(operation, dependencies_.executor.Now());
  client_->exchanges().Start(std::move(operation));
}

// ---- the session ----

void WorkerMember::OnMessage(ToMember message) {
  std::visit([&](const auto& alternative) { On(alternative); }, message);
}

void WorkerMember::OnClosed(const absl::Status& why) {
  if (leaving_ != nullptr && leaving_->is_done()) return;
  Break(absl::UnavailableError(absl::StrCat("no coordinator: ", why.message())));
}

void WorkerMember::On(const Welcome& message) {
  reports_.SetPeriod(std::chrono::milliseconds(message.heartbeat_milliseconds));
  // Before anything else is reported in this session, so that the coordinator misses none.
  statistics().RepeatLosses();
  operations_.SetJob(message.settings);
  client_->routes().Promise(message.term);
  if (message.settings.keeps_copies) client_->values().KeepCopies();
  client_->joint().SetStallLimit(message.settings.stall);
  if (joining_->is_done()) return;
  if (options_.bypasses_codecs && !message.settings.deterministic) client_->TryCodecs();
  log_.Info("joined", {{"job", message.settings.job}, {"term", message.term.value()}});
  joining_->Finish();
}

// Messages on their way to the previous coordinator are lost, so they are sent again.
void WorkerMember::On(const Collect& message) {
  is_hold_outdated_ = hold_.has_value();
  session_->Send(WorkerReport{.term = message.term,
                              .entries = client_->routes().Entries(),
                              .step = Progress(),
                              .desired = desired_});
  if (registration_ != nullptr && !is_member_)
    session_->Send(RegisterTensors{registration_->specs()});
  if (leave_ && !leaving_->is_done()) {
    leave_->stats = reports_.TakeStats();
    session_->Send(*leave_);
  }
  reports_.SendHeartbeat();
}

void WorkerMember::On(const SetServers& message) {
  if (message.desired.revision > desired_.revision) desired_ = message.desired;
  client_->SetServers(message.servers);
}

void WorkerMember::On(const SetReplicas& message) {
  client_->UpdateShards(message.entries);
  FinishLeave();
}

// From here on, nothing that the old primaries publish is accepted.
void WorkerMember::On(const CollectCopies& message) {
  client_->UpdateShards(message.entries);
  for (const auto& [shard, entry] : message.entries) {
    session_->Send(ShardCopies{
        .round = message.round, .shard = shard, .chunks = client_->offers().CopiesOf(shard)});
  }
}

void WorkerMember::On(const OfferCopies& message) {
  client_->offers().Offer(message);
}

void WorkerMember::On(const TraceSteps& message) {
  const Step next = operations_.next_step(OperationTable::Counted::kOnWire);
  reports_.StartTrace(message, has_begun() ? std::optional<Step>(next) : std::nullopt);
}

void WorkerMember::On(const ActivateView& message) {
  Enter(message.view);
  // The coordinator that held the steps is gone, and its view is not in force.
  if (std::exchange(is_hold_outdated_, false) && hold_) On(ResumeSteps{hold_->round});
}

void WorkerMember::Enter(const View& view) {
  TakeMode(view);
  const ViewMember* self = view.Find(options_.worker);
  const bool is_in_view = self != nullptr && self->incarnation == options_.incarnation;
  if (leaving_ != nullptr && (!is_in_view || self->end_step)) {
    may_leave_ = true;
    return FinishLeave();
  }
  if (!is_in_view) {
    if (is_member_) Break(absl::AbortedError("this worker was given up and is no longer a member"));
    return;
  }
  if (is_member_ && registration_ != nullptr && self->from_step < from_step_) {
    from_step_ = self->from_step;
    client_->LowerPulls();
  }
}

void WorkerMember::On(const Release& message) {
  departure_.SetReleased(message.is_released);
  log_.Info(message.is_released ? "released: leaves after this step" : "kept after all");
  RunDue();
}

void WorkerMember::On(const Stop& message) {
  Break(message.status.ok() ? absl::CancelledError("the job ends") : message.status);
}

WorkerProgress WorkerMember::ReportedProgress() const {
  return {.chunks = client_->chunks(),
          .step = has_begun() ? std::optional<Step>(ProgramStep(Progress())) : std::nullopt,
          .steps_skipped = consistency_.steps_skipped};
}

Step WorkerMember::Progress() const {
  return consistency_.is_sync() ? client_->chunks().LowestVersion()
                                : std::max(from_step_, client_->chunks().LowestClock());
}

Step WorkerMember::ProgramStep(Step step) const {
  return Step{step.value() - std::min(step.value(), consistency_.steps_skipped)};
}

// Sent at once: this may be the only remaining worker that knows.
void WorkerMember::OnUnevenStep(Step step) {
  log_.Info("uneven step: its chunks had different contributors",
            {{"step", ProgramStep(step).value()}});
  statistics().AddUnevenStep(step);
  reports_.SendHeartbeat();
}

// ---- registering ----

void WorkerMember::StartRegistration(std::shared_ptr<Registration> registration) {
  if (broken_.ok() && departure_.is_end_requested()) EndBeforeFirstStep();
  if (!broken_.ok()) return registration->pending().Fail(broken_);
  if (registration_ != nullptr || is_member_) {
    return registration->pending().Fail(
        absl::FailedPreconditionError("tensors are registered once, all together"));
  }
  session_->Send(RegisterTensors{registration->specs()});
  registration_ = std::move(registration);
}

// The first workers send their own values, and the first to reach the server counts; a later worker
// receives the job's. Either way the answer overwrites the caller's memory.
void WorkerMember::On(const TensorsRegistered& message) {
  if (registration_ == nullptr || is_member_) return;
  is_member_ = true;
  from_step_ = message.start_step;
  client_->SetTensors(message.tensors);
  reports_.SetTensors(message.tensors);
  client_->UseMode(consistency_);
  SendWholeIfAsked();
  registration_->SetPlaces(message.tensors);
  const std::vector<TensorRequest> requests =
      registration_->Requests(message.is_fresh ? FrameType::kInit : FrameType::kPull,
                              consistency_.is_sync() ? message.start_step : Step{0},
                              dependencies_.executor.Now(),
                              [this] { OnValuesInPlace(); });
  for (const TensorRequest& request : requests) client_->Start(request);
}

void WorkerMember::OnValuesInPlace() {
  if (!consistency_.is_led()) return FinishRegistration();
  // Not from within an answer, which the client is still processing.
  dependencies_.executor.Post([this] { CatchUp(); });
}

void WorkerMember::CatchUp() {
  if (!broken_.ok() || registration_ == nullptr) return;
  client_->CatchUp(registration_->Requests(
      FrameType::kPull, Step{}, dependencies_.executor.Now(), [this] { FinishRegistration(); }));
}

void WorkerMember::FinishRegistration() {
  const Step start = consistency_.is_sync() ? client_->chunks().LowestVersion() : from_step_;
  WarnOfBatch(log_, operations_.Begin(*registration_, start, consistency_));
  if (from_step_ > Step{0}) state_.SetJoinedOthers();
  reports_.OnBegun(ProgramStep(start));
  log_.Info("values in place", {{"start_step", start.value()}});
  std::exchange(registration_, nullptr)->pending().Finish();
  ReportIfDrained();
}

void WorkerMember::OnStepSettled(Step version) {
  const uint64_t samples = std::exchange(undecided_samples_, 0);
  if (client_->step().was_admitted()) statistics().AddSamples(samples);
  if (registration_ == nullptr) operations_.SkipTo(version);  // otherwise it has no numbers yet
}

// ---- leaving, and the job's end ----

void WorkerMember::OnEndRequested() {
  reports_.SetEnding(log_);
  if (client_) has_begun() ? RunDue() : EndBeforeFirstStep();
}

void WorkerMember::EndBeforeFirstStep() {
  departure_.SetReplaced();
  Break(absl::CancelledError("this process was told to end (SIGTERM)"));
}

void WorkerMember::SendLeave(std::shared_ptr<PendingOperation> pending,
                             Step end_step,
                             bool is_early) {
  if (!broken_.ok()) return pending->Fail(broken_);
  // The others would wait in vain for what is not pushed.
  const absl::Status pushed = operations_.EndStep();
  if (!pushed.ok()) return pending->Fail(pushed);
  leaving_ = std::move(pending);
  leave_ = pushpull::Leave{end_step, reports_.Finish(ProgramStep(end_step)), is_early};
  session_->Send(*leave_);
}

// Not while the copies in the program's memory may be needed.
void WorkerMember::FinishLeave() {
  if (!may_leave_ || leaving_->is_done() || client_->offers().MayBeNeeded()) return;
  client_->values().copies().Clear();  // the program may change its memory from now on
  leaving_->Finish();
}

void WorkerMember::Break(const absl::Status& why) {
  if (!broken_.ok()) return;
  broken_ = why;
  log_.Warning("the job cannot go on", {{"why", why.message()}});
  const absl::Status first = client_->FailAll(why);
  if (!first.ok() && !std::exchange(has_reported_failure_, true)) session_->Send(Failure{first});
  operations_.FailWaiting(why);
  joining_->Fail(why);
  if (registration_ != nullptr) registration_->pending().Fail(why);
  if (leaving_ != nullptr) leaving_->Fail(why);
}

// ---- between two modes ----

void WorkerMember::On(const HoldSteps& message) {
  // Until its values are in place, its first step is the view's.
  const Step next =
      operations_.Hold(message.until, has_begun() ? std::nullopt : std::optional<Step>(from_step_));
  hold_ = message;
  has_reported_hold_ = false;
  RunDue();
  if (!message.until) session_->Send(StepsHeld{.round = message.round, .next_step = next});
}

void WorkerMember::On(const ResumeSteps& message) {
  if (!hold_ || hold_->round != message.round) return;
  hold_.reset();
  if (has_begun()) reports_.activity().OnBegun(dependencies_.executor.Now());
  operations_.Resume();
  RunDue();
}

void WorkerMember::TakeMode(const View& view) {
  if (view.consistency == consistency_) return;
  consistency_ = view.consistency;
  state_.SetConsistency(consistency_);
  if (!has_begun()) return;
  client_->UseMode(consistency_);
  from_step_ = consistency_.from_step;
  if (consistency_.is_sync()) client_->RaiseVersions(from_step_);
  hold_.reset();
  reports_.activity().OnBegun(dependencies_.executor.Now());
  operations_.Continue(from_step_, consistency_);
  log_.Info("mode", {{"name", NameOf(consistency_.mode)}, {"from_step", from_step_.value()}});
  RunDue();
}

void WorkerMember::ReportIfDrained() {
  if (!hold_ || !hold_->until || has_reported_hold_ || registration_ != nullptr) return;
  if (client_->chunks().has_pushes() || !operations_.IsDrained()) return;
  has_reported_hold_ = true;
  reports_.activity().OnHeld(dependencies_.executor.Now());
  session_->Send(StepsHeld{.round = hold_->round, .next_step = *hold_->until, .is_drained = true});
}

// ---- checkpoints ----

void WorkerMember::On(const Capture& message) {
  capture_.Begin(message);
  if (is_member_) SendWholeIfAsked();
}

void WorkerMember::On(const EndCapture& message) {
  if (capture_.End(message.attempt)) client_->ForgetWhole();
}

void WorkerMember::SendWholeIfAsked() {
  if (const std::optional<Step> step = capture_.WholeStep()) client_->SendWhole(*step);
}

}  // namespace pushpull
