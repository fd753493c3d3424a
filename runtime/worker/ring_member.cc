// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/ring_member.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "runtime/tensor/dtype.h"
#include "runtime/worker/sample_share.h"

namespace pushpull {

RingMember::RingMember(WorkerNodeOptions options,
                       WorkerDependencies dependencies,
                       OperationTable& operations,
                       Departure& departure,
                       Log log)
    : options_(std::move(options)),
      dependencies_(dependencies),
      log_(std::move(log)),
      operations_(operations),
      departure_(departure),
      reports_(
          options_.worker,
          dependencies.executor,
          dependencies.metrics,
          [this] { return ReportedProgress(); },
          [this](FromMember message) {
            if (session_->is_open()) session_->Send(std::move(message));
          }) {}

RingMember::~RingMember() = default;

void RingMember::Open(std::shared_ptr<PendingOperation> joining) {
  joining_ = std::move(joining);
  client_.emplace(RingPlace{.self = options_.worker,
                            .listener = std::move(*options_.ring),
                            .tls = options_.ring_tls,
                            .has_shm = options_.ring_has_shm},
                  dependencies_.executor,
                  statistics(),
                  static_cast<RingClientObserver&>(*this));
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

void RingMember::Run(const TensorRequest& request) {
  if (!broken_.ok()) return request.pending->Fail(broken_);
  if (IsPush(request.type) && request.tensor == 0)
    statistics().AddSamples(static_cast<uint64_t>(request.weight));
  reports_.activity().OnRequest(request, dependencies_.executor.Now());
  client_->Start(request);
}

void RingMember::RunDue() {
  const std::vector<TensorRequest> due = operations_.TakeDue();
  for (const TensorRequest& request : due) Run(request);
  operations_.OnStarted(due.size());
}

void RingMember::StartExchange(std::shared_ptr<ExchangeOperation> operation) {
  operation->pending.Fail(absl::FailedPreconditionError(
      "collectives need servers, and a job with spec.sync.mode AllReduce has none"));
}

// ---- the session ----

void RingMember::OnMessage(ToMember message) {
  std::visit(
      [&](const auto& alternative) {
        // The other messages concern servers.
        if constexpr (requires { On(alternative); }) On(alternative);
      },
      message);
}

void RingMember::OnClosed(const absl::Status& why) {
  if (leaving_ != nullptr && leaving_->is_done()) return;
  Break(absl::UnavailableError(absl::StrCat("no coordinator: ", why.message())));
}

void RingMember::On(const Welcome& message) {
  reports_.SetPeriod(std::chrono::milliseconds(message.heartbeat_milliseconds));
  // Before anything else is reported in this session, so that the coordinator misses none.
  statistics().RepeatLosses();
  operations_.SetJob(message.settings);
  if (joining_->is_done()) return Introduce();
  if (!message.settings.deterministic) client_->TryAlgorithms();
  log_.Info("joined", {{"job", message.settings.job}, {"term", message.term.value()}});
  joining_->Finish();
}

// Also to a coordinator that already knew this: the session that reported it has ended, and with it
// the worker's place in the ring.
void RingMember::Introduce() {
  if (!specs_.empty()) session_->Send(RegisterTensors{specs_});
  if (!leave_ || leaving_->is_done()) return;
  leave_->stats = reports_.TakeStats();
  session_->Send(*leave_);
}

void RingMember::On(const Collect& message) {
  session_->Send(WorkerReport{
      .term = message.term, .entries = {}, .step = client_->step(), .desired = desired_});
  reports_.SendHeartbeat();
}

void RingMember::On(const SetServers& message) {
  if (message.desired.revision <= desired_.revision) return;
  desired_ = message.desired;
  client_->SetBatch(desired_.global_batch);
}

void RingMember::On(const ActivateView& message) {
  const ViewMember* self = message.view.Find(options_.worker);
  const bool is_in_view = self != nullptr && self->incarnation == options_.incarnation;
  if (leaving_ != nullptr && !is_in_view) leaving_->Finish();
}

void RingMember::On(const Release& message) {
  departure_.SetReleased(message.is_released);
  log_.Info(message.is_released ? "released: leaves after this step" : "kept after all");
}

void RingMember::On(const Stop& message) {
  Break(message.status.ok() ? absl::CancelledError("the job ends") : message.status);
}

void RingMember::On(const TraceSteps& message) {
  const Step next = operations_.next_step(OperationTable::Counted::kOnWire);
  reports_.StartTrace(message, has_begun() ? std::optional<Step>(next) : std::nullopt);
}

WorkerProgress RingMember::ReportedProgress() const {
  return {.chunks = no_chunks_,
          .step = has_begun() ? std::optional<Step>(client_->step()) : std::nullopt};
}

// ---- registering ----

void RingMember::StartRegistration(std::shared_ptr<Registration> registration) {
  if (broken_.ok() && departure_.is_end_requested()) EndBeforeFirstStep();
  if (!broken_.ok()) return registration->pending().Fail(broken_);
  if (registration_ != nullptr || is_member_) {
    return registration->pending().Fail(
        absl::FailedPreconditionError("tensors are registered once, all together"));
  }
  specs_ = registration->specs();
  registration_ = std::move(registration);
  session_->Send(RegisterTensors{specs_});
}

// The worker is in the ring that is being formed.
void RingMember::On(const TensorsRegistered& message) {
  if (registration_ == nullptr || is_member_) return;
  is_member_ = true;
  const absl::Status made = client_->SetTensors(message.tensors);
  if (!made.ok()) return Break(made);
  reports_.SetTensors(message.tensors);
  registration_->SetPlaces(message.tensors);
  const std::vector<TensorRequest> requests = registration_->Requests(
      FrameType::kInit, Step{}, dependencies_.executor.Now(), [this] { FinishRegistration(); });
  for (const TensorRequest& request : requests) client_->Start(request);
}

void RingMember::FinishRegistration() {
  WarnOfBatch(log_,
              operations_.Begin(*registration_, client_->step(), {.mode = SyncMode::kAllReduce}));
  reports_.OnBegun(client_->step());
  log_.Info("values in place", {{"start_step", client_->step().value()}});
  std::exchange(registration_, nullptr)->pending().Finish();
}

// ---- the ring ----

// A message that finds no coordinator is not needed: the next coordinator forms a ring of its own.
void RingMember::OnRingMessage(FromMember message) {
  if (const auto* news = std::get_if<RingNews>(&message); news != nullptr && !news->status.ok())
    log_.Info("the ring has failed, the step is repeated", {{"why", news->status.message()}});
  if (session_->is_open()) session_->Send(std::move(message));
}

void RingMember::OnRingStep(Step next) {
  statistics().SetStep(next);
  reports_.activity().OnAnswered(dependencies_.executor.Now());
}

void RingMember::OnRingOverflow(const TensorSpec& tensor, uint64_t values) {
  if (!overflowed_.insert(tensor.name).second) return;
  log_.Warning("values are too large for the tensor's type, the program receives infinities",
               {{"tensor", tensor.name},
                {"dtype", ToString(tensor.dtype)},
                {"step", client_->step().value()},
                {"values", values}});
}

void RingMember::OnRingTrial(const EndedRingTrial& ended) {
  const std::vector<AlgorithmTrial::Result>& results = ended.trial.results;
  std::vector<std::string> times;
  for (const AlgorithmTrial::Result& result : results)
    times.push_back(
        absl::StrFormat("%s %.3f ms", ToString(result.algorithm), result.seconds * 1e3));
  log_.Info("algorithm chosen",
            {{"stage", ended.stage},
             {"collective", ToString(ended.trial.collective)},
             {"bytes", ended.trial.num_bytes},
             {"algorithm", ToString(results.front().algorithm)},
             {"measured", absl::StrJoin(times, ", ")}});
}

void RingMember::OnRingBroken(const absl::Status& why) {
  if (absl::IsInvalidArgument(why)) session_->Send(Failure{why});
  Break(why);
}

// ---- leaving, and the job's end ----

void RingMember::OnEndRequested() {
  reports_.SetEnding(log_);
  if (client_ && !has_begun()) EndBeforeFirstStep();
}

void RingMember::EndBeforeFirstStep() {
  departure_.SetReplaced();
  Break(absl::CancelledError("this process was told to end (SIGTERM)"));
}

void RingMember::SendLeave(std::shared_ptr<PendingOperation> pending,
                           Step end_step,
                           bool is_early) {
  if (!broken_.ok()) return pending->Fail(broken_);
  // The others would wait in vain for what is not pushed.
  const absl::Status pushed = operations_.EndStep();
  if (!pushed.ok()) return pending->Fail(pushed);
  leaving_ = std::move(pending);
  leave_ = pushpull::Leave{end_step, reports_.Finish(end_step), is_early};
  session_->Send(*leave_);
}

void RingMember::Break(const absl::Status& why) {
  if (!broken_.ok()) return;
  broken_ = why;
  log_.Warning("the job cannot go on", {{"why", why.message()}});
  client_->FailAll(why);
  operations_.FailWaiting(why);
  joining_->Fail(why);
  if (registration_ != nullptr) registration_->pending().Fail(why);
  if (leaving_ != nullptr) leaving_->Fail(why);
}

}  // namespace pushpull
