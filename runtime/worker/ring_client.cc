// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/ring_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"

#include "runtime/base/status_macros.h"
#include "runtime/ring/ring_calls.h"

namespace pushpull {
namespace {

std::span<const float> Floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

void Copy(std::span<const float> values, std::span<std::byte> target) {
  if (!target.empty()) std::memcpy(target.data(), values.data(), target.size());
}

}  // namespace

RingClient::RingClient(RingPlace place,
                       Executor& executor,
                       WorkerStatistics& statistics,
                       RingClientObserver& observer)
    : place_(std::move(place)),
      executor_(executor),
      statistics_(statistics),
      observer_(observer),
      saver_(executor, [this](Captured done) { observer_.OnRingMessage(std::move(done)); }),
      thread_(executor) {}

absl::Status RingClient::SetTensors(const std::vector<PlacedTensor>& tensors) {
  const bool has_shm = place_.has_shm && place_.tls == nullptr;
  PUSHPULL_ASSIGN_OR_RETURN(
      state_,
      RingState::Make(tensors, has_shm ? RingState::Sums::kShared : RingState::Sums::kPrivate));
  pushes_.resize(tensors.size());
  return absl::OkStatus();
}

// ---- requests ----

void RingClient::Start(const TensorRequest& request) {
  if (!failed_.ok()) return request.pending->Fail(failed_);
  if (request.type == FrameType::kPush || request.type == FrameType::kPushPull)
    return AddPush(request);
  request.pending->SetNote("it waits for the other workers");
  reads_.push_back(request);
  AnswerReads();
}

void RingClient::AddPush(const TensorRequest& request) {
  Push& push = pushes_[request.tensor];
  if (push.is_there) {
    return request.pending->Fail(
        absl::FailedPreconditionError("the one before it is still under way: wait for it"));
  }
  request.pending->SetNote("it waits for the other workers");
  request.pending->SetNeed(
      absl::StrCat("a step begins when all of its ", pushes_.size(), " tensors are pushed"));
  if (num_pushed_ == 0) first_ready_ = request.ready;
  push = {.request = request, .is_there = true};
  ++num_pushed_;
  if (num_pushed_ == pushes_.size()) {
    for (const Push& each : pushes_) each.request.pending->SetNeed("");
  }
  TakeStepIfPushed();
}

void RingClient::TakeStepIfPushed() {
  if (!is_ready_ || is_busy() || num_pushed_ < pushes_.size()) return;
  std::vector<RingPush> pushes;
  for (const Push& push : pushes_) {
    pushes.push_back({.gradient = push.request.source,
                      .weight = push.request.weight,
                      .learning_rate = push.request.learning_rate,
                      .has_gradient = push.request.has_gradient});
  }
  thread_.Start(
      [this, pushes = std::move(pushes), batch = batch_] {
        return TakeStep(*ring_, *form_, pushes, batch, *state_);
      },
      [this](const absl::Status& status) { OnStepTaken(status); });
}

void RingClient::OnStepTaken(const absl::Status& status) {
  if (status.ok()) {
    mark_ = state_->mark();
    statistics_.SetBatch(state_->Batch());
    tried_in_ = {form_->epoch};
    Observe();
    for (const EndedRingTrial& ended : ring_->TakeEndedTrials()) observer_.OnRingTrial(ended);
    observer_.OnRingStep(mark_.step);
    // Before the program can push the next step.
    const bool is_copying = CopyIfDue();
    FinishPushes();
    if (is_copying) return;
  } else {
    is_ready_ = false;
  }
  if (Settle() || status.ok()) return;
  // All workers have the same sum and fail alike.
  if (absl::IsInvalidArgument(status)) return observer_.OnRingBroken(status);
  ReportFailed(status);
}

void RingClient::Observe() {
  const SteadyTime now = executor_.Now();
  SyncObservation observation{
      .number = Step{mark_.step.value() - 1}, .sync = now - first_ready_, .phases = {}, .step = {}};
  if (last_end_) observation.step = now - *last_end_;
  last_end_ = now;
  statistics_.AddSynchronized(observation);
  const uint64_t sent = ring_->bytes_sent();
  const absl::string_view channel = ring_->is_shm() ? "shm" : "tcp";
  statistics_.AddSent(channel, sent - bytes_sent_);
  // Each rank receives as much as another one sends.
  statistics_.AddReceived(channel, sent - bytes_sent_);
  bytes_sent_ = sent;
}

void RingClient::WriteValue(size_t tensor, std::span<std::byte> target) {
  const uint64_t overflows = state_->WriteValue(tensor, target);
  if (overflows > 0) observer_.OnRingOverflow(state_->spec(tensor), overflows);
}

// Takes the pushes out before finishing them: a program may react to one with its next push.
void RingClient::FinishPushes() {
  std::vector<Push> done = std::exchange(pushes_, std::vector<Push>(pushes_.size()));
  num_pushed_ = 0;
  for (size_t tensor = 0; tensor < done.size(); ++tensor) {
    const TensorRequest& request = done[tensor].request;
    if (!done[tensor].is_there) continue;
    WriteValue(tensor, request.target);
    if (request.takes_in_place) request.pending->SetPiece(0, {request.target, nullptr});
    request.pending->NoteGradient(state_->had_gradient(tensor));
    request.pending->Finish();
  }
  observer_.OnRingAnswered();
}

void RingClient::AnswerReads() {
  if (!has_values_ || is_busy()) return;
  const auto first_left = std::partition(reads_.begin(), reads_.end(), [this](const auto& read) {
    return read.type != FrameType::kInit && read.step > mark_.step;
  });
  const std::vector<TensorRequest> answered(first_left, reads_.end());
  reads_.erase(first_left, reads_.end());
  for (const TensorRequest& read : answered) {
    WriteValue(read.tensor, read.target);
    Copy(state_->optimizer_state(read.tensor), read.state_target);
    if (!read.state_target.empty()) read.pending->SetUpdates(state_->updates(read.tensor));
    read.pending->Finish();
  }
  if (!answered.empty()) observer_.OnRingAnswered();
}

// ---- rings ----

void RingClient::OnStop(const StopRing& message) {
  if (message.epoch <= asked_) return;
  asked_ = message.epoch;
  must_stop_ = true;
  is_ready_ = false;
  if (is_busy()) return thread_.Stop();
  ReportStopped();
}

void RingClient::ReportStopped() {
  must_stop_ = false;
  ring_.reset();
  form_.reset();
  observer_.OnRingMessage(RingStopped{
      .epoch = asked_, .mark = has_values_ ? std::optional<RingMark>(mark_) : std::nullopt});
}

// The step under way was taken with this worker's gradients, but this worker has not seen its end.
bool RingClient::IsIncluded(const RingMark& mark) const {
  return absl::c_linear_search(tried_in_, mark.made_in) &&
         mark.step == Step{mark_.step.value() + 1} && num_pushed_ == pushes_.size();
}

void RingClient::OnForm(const FormRing& message) {
  if (message.epoch != asked_ || must_stop_ || form_ || is_busy() || !failed_.ok()) return;
  form_ = message;
  begun_ = absl::OkStatus();
  bytes_sent_ = 0;
  // An earlier copy may have been interrupted.
  for (const TensorRequest& read : reads_) {
    if (has_values_ || read.type != FrameType::kInit) continue;
    state_->SetInitial(read.tensor, read.source, Floats(read.initial_state), read.updates);
  }
  if (has_begun_ && mark_ != message.mark && !IsIncluded(message.mark)) {
    return observer_.OnRingBroken(
        absl::AbortedError("the other workers have gone on without this one, which was given up"));
  }
  // An interrupted copy leaves nothing usable.
  if (mark_ != message.mark) has_values_ = false;
  thread_.Start(
      [this] {
        const RingEnd end = {.listener = place_.listener,
                             .interrupt = thread_.interrupt(),
                             .self = place_.self,
                             .has_shm = place_.has_shm,
                             .tls = CurrentIdentity(place_.tls),
                             .arrays = state_->shared_sums(),
                             .tries_algorithms = tries_algorithms_};
        PUSHPULL_ASSIGN_OR_RETURN(ring_, RingLinks::Connect(end, *form_));
        if (form_->is_fresh && ring_->rank() == form_->source) {
          begun_ = BeginState();
          PUSHPULL_RETURN_IF_ERROR(begun_);
        }
        return form_->copies ? CopyState(*ring_, *form_, *state_) : absl::OkStatus();
      },
      [this](const absl::Status& status) { OnFormed(status); });
}

void RingClient::OnFormed(const absl::Status& status) {
  if (status.ok()) {
    const bool is_taken = has_begun_ && mark_ != form_->mark;
    if (mark_ != form_->mark) tried_in_.clear();
    tried_in_.push_back(form_->epoch);
    mark_ = form_->mark;
    statistics_.SetBatch(state_->Batch());
    has_values_ = true;
    has_begun_ = true;
    if (is_taken) {
      observer_.OnRingStep(mark_.step);
      FinishPushes();
    }
  }
  if (!begun_.ok()) return observer_.OnRingMessage(Restored{begun_});
  if (Settle()) return;
  if (!status.ok()) return ReportFailed(status);
  is_ready_ = true;
  observer_.OnRingMessage(RingNews{.epoch = form_->epoch, .status = absl::OkStatus()});
  if (!CopyIfDue()) TakeStepIfPushed();
}

absl::Status RingClient::BeginState() {
  if (!form_->restore_from.empty()) {
    const auto read = form_->values_only ? ReadValues : ReadState;
    PUSHPULL_RETURN_IF_ERROR(read(files_, form_->restore_from, *state_));
  }
  return state_->Begin(form_->mark, form_->workers);
}

// ---- checkpoints ----

void RingClient::OnCapture(const Capture& order) {
  if (order.part >= order.parts) return;  // not one of a ring
  saver_.Begin(order);
  CopyIfDue();
}

bool RingClient::CopyIfDue() {
  if (!is_ready_ || is_busy()) return false;
  const std::optional<Capture> order = saver_.AdvanceTo(mark_.step);
  if (!order) return false;
  thread_.Start(
      [this, part = order->part, parts = order->parts] {
        part_ = StatePart::Copy(*state_, part, parts);
        return absl::OkStatus();
      },
      [this, attempt = order->attempt](const absl::Status& /*status*/) {
        saver_.Write(attempt, std::exchange(part_, absl::UnknownError("taken")));
        // Another order may have come meanwhile.
        if (!Settle() && !CopyIfDue()) TakeStepIfPushed();
      });
  return true;
}

bool RingClient::Settle() {
  if (!failed_.ok()) {
    FailNow();
    return true;
  }
  AnswerReads();
  if (must_stop_) ReportStopped();
  return !form_.has_value();
}

// The coordinator then forms the next ring.
void RingClient::ReportFailed(const absl::Status& why) {
  observer_.OnRingMessage(RingNews{.epoch = form_->epoch, .status = why});
  ring_.reset();
  form_.reset();
}

// ---- the end ----

void RingClient::FailAll(const absl::Status& why) {
  if (!failed_.ok()) return;
  failed_ = why;
  is_ready_ = false;
  // The task may read gradients, whose memory is the program's again when its pushes have failed.
  if (is_busy()) return thread_.Stop();
  FailNow();
}

void RingClient::FailNow() {
  std::vector<Push> pushes = std::exchange(pushes_, std::vector<Push>(pushes_.size()));
  num_pushed_ = 0;
  for (const Push& push : pushes) {
    if (push.is_there) push.request.pending->Fail(failed_);
  }
  for (const TensorRequest& read : std::exchange(reads_, {})) read.pending->Fail(failed_);
}

}  // namespace pushpull
