// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/worker_node.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/signals.h"
#include "runtime/base/status_macros.h"
#include "runtime/tensor/shape.h"
#include "runtime/worker/use_order.h"

namespace pushpull {
namespace {

constexpr absl::string_view kReservedPrefix = "pushpull.";
// For a coordinator that has to be told again; it keeps no more either.
constexpr ptrdiff_t kLossesKept = 4096;
constexpr int kExitToldToEnd = ExitCodeOf(SIGTERM);

absl::string_view Verb(FrameType type) {
  switch (type) {
    case FrameType::kPush:
      return "push";
    case FrameType::kPull:
      return "pull";
    case FrameType::kInit:
      return "initial value";
    default:
      return "push_pull";
  }
}

std::string Describe(FrameType type, absl::string_view tensor, Step step) {
  return absl::StrCat(Verb(type), " of tensor \"", tensor, "\" step ", step.value());
}

}  // namespace

WorkerNode::WorkerNode(WorkerNodeOptions options, WorkerDependencies dependencies, Log log)
    : options_(std::move(options)), dependencies_(dependencies), log_(std::move(log)) {}

WorkerNode::~WorkerNode() {
  dependencies_.executor.Cancel(timer_);
}

// ---- called by the program's threads ----

std::shared_ptr<PendingOperation> WorkerNode::Join() {
  auto pending = std::make_shared<PendingOperation>("join");
  dependencies_.executor.Post([this, pending] {
    joining_ = pending;
    client_.emplace(
        ChunkClientOptions{.hello = {options_.job, options_.worker, options_.incarnation, 0},
                           .resend_after = options_.resend_after,
                           .fault_point = options_.fault_point},
        dependencies_.transport,
        dependencies_.executor,
        *this);
    const auto registration = [this](Term promised) {
      return RegisterWorker{.worker = options_.worker,
                            .incarnation = options_.incarnation,
                            .metrics_address = options_.metrics_address,
                            .pid = static_cast<uint64_t>(getpid()),
                            .promised = promised,
                            .is_member = is_member_};
    };
    session_.emplace(options_.session,
                     dependencies_.coordinator,
                     dependencies_.executor,
                     *this,
                     registration,
                     log_);
    timer_ = dependencies_.executor.RunAfter(heartbeat_, [this] { SendHeartbeat(); });
    if (is_told_to_end_.load(std::memory_order_relaxed)) EndBeforeTheFirstStep();
  });
  return pending;
}

std::shared_ptr<PendingOperation> WorkerNode::Register(
    std::span<const TensorRegistration> tensors) {
  auto pending = std::make_shared<PendingOperation>("register");
  Registration registration{
      .specs = {}, .values = {}, .priorities = {}, .keep_values = {}, .pending = pending};
  for (const TensorRegistration& tensor : tensors) {
    if (absl::StartsWith(tensor.spec.name, kReservedPrefix)) {
      pending->Fail(absl::InvalidArgumentError(absl::StrCat("tensor \"",
                                                            tensor.spec.name,
                                                            "\": names that begin with ",
                                                            kReservedPrefix,
                                                            " are the job's own")));
      return pending;
    }
    const absl::StatusOr<uint64_t> bytes = NumBytes(tensor.spec.dims, tensor.spec.dtype);
    if (!bytes.ok() || *bytes != tensor.value.size_bytes()) {
      pending->Fail(absl::InvalidArgumentError(absl::StrCat("tensor \"",
                                                            tensor.spec.name,
                                                            "\": shape ",
                                                            DimsToString(tensor.spec.dims),
                                                            " does not fit a value of ",
                                                            tensor.value.size(),
                                                            " floats")));
      return pending;
    }
    registration.specs.push_back(tensor.spec);
    registration.values.push_back(tensor.value);
    const size_t place = registration.priorities.size();
    registration.priorities.push_back(
        tensor.priority.value_or(PriorityOfPlace(place, tensors.size())));
    registration.keep_values.push_back(tensor.keeps_value);
  }
  {
    MutexLock lock(mu_);
    if (samples_ && samples_->is_divided()) {
      registration.specs.push_back(samples_->spec());
      registration.values.push_back(samples_->value());
      registration.priorities.push_back(kSamplesPriority);
      registration.keep_values.push_back(true);
    }
  }
  dependencies_.executor.Post([this, registration = std::move(registration)]() mutable {
    StartRegistration(std::move(registration));
  });
  return pending;
}

absl::StatusOr<WorkerNode::Tensor> WorkerNode::FindTensor(absl::string_view name,
                                                          size_t values) const {
  const auto it = tensors_.find(std::string(name));
  if (it == tensors_.end()) {
    return absl::NotFoundError(absl::StrCat("tensor \"", name, "\" is not registered"));
  }
  if (values != it->second.num_values) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"", name, "\" has ", it->second.num_values, " values, got ", values));
  }
  return it->second;
}

absl::StatusOr<std::shared_ptr<PendingOperation>> WorkerNode::PushPull(
    absl::string_view tensor,
    std::span<const float> gradient,
    std::span<float> out,
    const PushOptions& options) {
  TensorRequest request{.type = out.empty() ? FrameType::kPush : FrameType::kPushPull,
                        .source = std::as_bytes(gradient),
                        .target = std::as_writable_bytes(out),
                        .weight = options.samples,
                        .learning_rate = options.learning_rate,
                        .takes_in_place = options.in_place && !out.empty(),
                        .ready = dependencies_.executor.Now(),
                        .pending = nullptr};
  {
    MutexLock lock(mu_);
    PUSHPULL_ASSIGN_OR_RETURN(const Tensor known, FindTensor(tensor, gradient.size()));
    if (!out.empty() && out.size() != known.num_values) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", tensor, "\": out has ", out.size(), " values, expected ", known.num_values));
    }
    if (!numbers_.MayPush(known.index)) return RefusePush();
    request.tensor = known.index;
    request.priority = known.priority;
    request.is_kept = known.keeps_value;
    request.step = numbers_.Next(known.index);
    request.pending =
        std::make_shared<PendingOperation>(Describe(request.type, tensor, request.step));
    if (!numbers_.Take(known.index)) {
      const bool is_second = std::any_of(held_.begin(), held_.end(), [&](const auto& other) {
        return other.tensor == known.index;
      });
      if (is_second) {
        request.pending->Fail(
            absl::FailedPreconditionError("the one before it is still under way: wait for it"));
      } else {
        held_.push_back(request);
      }
      return request.pending;
    }
    ++pushes_posted_;
  }
  auto pending = request.pending;
  dependencies_.executor.Post([this, request = std::move(request)] { Run(request); });
  return pending;
}

absl::StatusOr<std::shared_ptr<PendingOperation>> WorkerNode::Pull(absl::string_view tensor,
                                                                   std::span<float> out,
                                                                   Step min_version) {
  TensorRequest request{.type = FrameType::kPull,
                        .step = min_version,
                        .source = {},
                        .target = std::as_writable_bytes(out),
                        .ready = dependencies_.executor.Now(),
                        .pending = std::make_shared<PendingOperation>(
                            Describe(FrameType::kPull, tensor, min_version))};
  {
    MutexLock lock(mu_);
    PUSHPULL_ASSIGN_OR_RETURN(const Tensor known, FindTensor(tensor, out.size()));
    request.tensor = known.index;
    request.priority = known.priority;
    request.clock = numbers_.Next(known.index);
  }
  auto pending = request.pending;
  dependencies_.executor.Post([this, request = std::move(request)] { Run(request); });
  return pending;
}

absl::Status WorkerNode::UseSamples(SampleSource source) {
  MutexLock lock(mu_);
  if (global_batch_ > 0) {
    source.batch = global_batch_;
    source.is_global_batch = true;
  }
  if (source.num_samples == 0 || source.epochs == 0 || source.batch == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("samples, epochs and batch must be above 0, are ",
                     source.num_samples,
                     ", ",
                     source.epochs,
                     " and ",
                     source.batch));
  }
  if (!tensors_.empty() || samples_) {
    return absl::FailedPreconditionError(
        "samples are used before the tensors are registered, once");
  }
  if (divides_samples_) {
    samples_.emplace(options_.worker, source);
  } else {
    samples_.emplace(options_.worker, source, workers_);
  }
  return absl::OkStatus();
}

absl::StatusOr<StepSamples> WorkerNode::Samples() const {
  MutexLock lock(mu_);
  if (!samples_ || tensors_.empty())
    return absl::FailedPreconditionError("Samples needs UseSamples and Register before");
  const auto queue = tensors_.find(std::string(kSampleQueueTensor));
  return samples_->At(queue == tensors_.end() ? Step{} : numbers_.Next(queue->second.index));
}

absl::StatusOr<std::shared_ptr<PendingOperation>> WorkerNode::CommitSamples() {
  std::span<const float> gradient;
  std::span<float> value;
  double weight = 0;
  {
    MutexLock lock(mu_);
    if (!samples_)
      return absl::FailedPreconditionError("CommitSamples needs UseSamples and Register before");
    weight = samples_->Commit(must_go());
    if (!samples_->is_divided()) {
      auto done = std::make_shared<PendingOperation>("commit of samples");
      done->Finish();
      return done;
    }
    gradient = samples_->gradient();
    value = samples_->value();
  }
  return PushPull(kSampleQueueTensor, gradient, value, {.samples = weight});
}

bool WorkerNode::must_go() const {
  return is_released_.load(std::memory_order_relaxed) ||
         is_told_to_end_.load(std::memory_order_relaxed);
}

bool WorkerNode::is_released() const {
  const bool must_go = this->must_go();
  if (must_go) knows_of_end_.store(true, std::memory_order_relaxed);
  return must_go;
}

void WorkerNode::TellToEnd() {
  if (is_told_to_end_.exchange(true)) return;
  {
    MutexLock lock(mu_);
    numbers_.EndSoon();
  }
  dependencies_.executor.Post([this] {
    log_.Info("told to end: leaves after this step");
    if (client_ && (!is_member_ || registration_)) EndBeforeTheFirstStep();
  });
}

void WorkerNode::EndBeforeTheFirstStep() {
  exit_code_.store(kExitToldToEnd, std::memory_order_relaxed);
  Break(absl::CancelledError("this process was told to end (SIGTERM)"));
}

absl::Status WorkerNode::RefusePush() {
  knows_of_end_.store(true, std::memory_order_relaxed);
  exit_code_.store(kExitToldToEnd, std::memory_order_relaxed);
  BeginLeave();
  return absl::CancelledError(
      "this process was told to end (SIGTERM) and takes no further step: end it with exit_code()");
}

// A program that has not heard of it leaves because it is done. One that has may be done all the
// same, which its samples tell.
bool WorkerNode::LeavesEarly() const {
  if (samples_ && samples_->was_released()) return true;
  if (!must_go()) return false;
  const bool knows = knows_of_end_.load(std::memory_order_relaxed);
  if (!samples_ || tensors_.empty()) return knows || is_released_.load(std::memory_order_relaxed);
  if (!knows) return false;
  const auto queue = tensors_.find(std::string(kSampleQueueTensor));
  const absl::StatusOr<StepSamples> next =
      samples_->At(queue == tensors_.end() ? Step{} : numbers_.Next(queue->second.index));
  return !next.ok() || !next->is_over;
}

std::shared_ptr<PendingOperation> WorkerNode::Leave() {
  MutexLock lock(mu_);
  BeginLeave();
  return leave_pending_;
}

void WorkerNode::BeginLeave() {
  if (leave_pending_ != nullptr) return;
  leave_pending_ = std::make_shared<PendingOperation>("leave");
  const bool was_released = LeavesEarly();
  const bool is_replaced = is_told_to_end_.load(std::memory_order_relaxed) &&
                           !is_released_.load(std::memory_order_relaxed);
  if (was_released && is_replaced) exit_code_.store(kExitToldToEnd, std::memory_order_relaxed);
  const Step end_step = numbers_.Highest();
  dependencies_.executor.Post([this, pending = leave_pending_, end_step, was_released] {
    if (!broken_.ok()) return pending->Fail(broken_);
    leaving_ = pending;
    stats_.step = ProgramStep(end_step);
    leave_ = pushpull::Leave{end_step, stats_, was_released};
    session_->Send(*leave_);
    stats_.losses.clear();
  });
}

void WorkerNode::Share(std::shared_ptr<const SharedMemory> memory) {
  dependencies_.executor.Post(
      [this, memory = std::move(memory)]() mutable { client_->Share(std::move(memory)); });
}

void WorkerNode::ReportLoss(Step step, double loss, uint64_t samples) {
  dependencies_.metrics.SetLoss(loss);
  dependencies_.executor.Post(
      [this, point = LossPoint{step, loss, samples}] { stats_.losses.push_back(point); });
}

void WorkerNode::ReportResult(absl::string_view name, double value) {
  dependencies_.executor.Post(
      [this, name = std::string(name), value] { stats_.results[name] = value; });
}

Step WorkerNode::start_step() const {
  MutexLock lock(mu_);
  return start_step_;
}

Step WorkerNode::next_step() const {
  MutexLock lock(mu_);
  const uint64_t next = numbers_.Highest().value();
  return Step{next - std::min(next, steps_skipped_)};
}

uint32_t WorkerNode::workers() const {
  MutexLock lock(mu_);
  return workers_;
}

// ---- on the executor ----

void WorkerNode::Run(const TensorRequest& request) {
  if (request.type != FrameType::kPull) {
    MutexLock lock(mu_);
    --pushes_posted_;
  }
  if (!broken_.ok()) {
    request.pending->Fail(broken_);
    if (std::exchange(has_reported_failure_, true)) return;
    session_->Send(Failure{absl::UnavailableError(request.pending->what())});
    return;
  }
  if (request.type != FrameType::kPull && request.tensor == 0) {
    stats_.samples += static_cast<uint64_t>(request.weight);
    dependencies_.metrics.AddSamples(static_cast<uint64_t>(request.weight));
  }
  client_->Start(request);
}

void WorkerNode::OnMessage(ToMember message) {
  std::visit([&](const auto& alternative) { On(alternative); }, message);
}

void WorkerNode::OnClosed(const absl::Status& why) {
  if (leaving_ != nullptr && leaving_->is_done()) return;
  Break(absl::UnavailableError(absl::StrCat("the coordinator cannot be reached: ", why.message())));
}

void WorkerNode::On(const Welcome& message) {
  heartbeat_ = std::chrono::milliseconds(message.heartbeat_milliseconds);
  dependencies_.executor.Cancel(timer_);
  timer_ = dependencies_.executor.RunAfter(heartbeat_, [this] { SendHeartbeat(); });
  {
    MutexLock lock(mu_);
    workers_ = message.settings.workers;
    divides_samples_ = message.settings.divides_samples;
    global_batch_ = message.settings.global_batch;
  }
  client_->PromiseTerm(message.term);
  if (message.settings.keeps_copies) client_->KeepCopies();
  if (joining_->is_done()) return;
  if (options_.bypasses_codecs && !message.settings.deterministic) client_->TryCodecs();
  log_.Info("joined", {{"job", message.settings.job}, {"term", message.term.value()}});
  joining_->Finish();
}

// What was on its way to the coordinator before is lost, so it is said again.
void WorkerNode::On(const Collect& message) {
  is_hold_void_ = hold_.has_value();
  session_->Send(WorkerReport{
      .term = message.term, .entries = client_->Entries(), .step = Progress(), .wanted = wanted_});
  if (registration_ && !is_member_) session_->Send(RegisterTensors{registration_->specs});
  stats_.losses.insert(stats_.losses.begin(), said_losses_.begin(), said_losses_.end());
  said_losses_.clear();
  if (leave_ && !leaving_->is_done()) {
    const std::vector<LossPoint> last = std::exchange(leave_->stats.losses, {});
    stats_.losses.insert(stats_.losses.end(), last.begin(), last.end());
    leave_->stats = stats_;
    session_->Send(*leave_);
    stats_.losses.clear();
  }
  SendStats();
}

void WorkerNode::On(const SetServers& message) {
  if (message.wanted.revision > wanted_.revision) wanted_ = message.wanted;
  client_->SetServers(message.servers);
}

void WorkerNode::On(const SetReplicas& message) {
  client_->UpdateShards(message);
  FinishLeave();
}

// From here on nothing is taken any more that the old primaries publish.
void WorkerNode::On(const CollectCopies& message) {
  client_->UpdateShards({.entries = message.entries});
  for (const auto& [shard, entry] : message.entries) {
    session_->Send(
        ShardCopies{.round = message.round, .shard = shard, .chunks = client_->CopiesOf(shard)});
  }
}

void WorkerNode::On(const OfferCopies& message) {
  client_->Offer(message);
}

void WorkerNode::On(const ActivateView& message) {
  Enter(message);
  // The coordinator that held the steps is gone, and its view is not the one.
  if (std::exchange(is_hold_void_, false) && hold_) On(ResumeSteps{hold_->round});
}

void WorkerNode::Enter(const ActivateView& message) {
  TakeMode(message.view);
  const ViewMember* self = message.view.Find(options_.worker);
  const bool is_in_view = self != nullptr && self->incarnation == options_.incarnation;
  if (leaving_ != nullptr && (!is_in_view || self->end_step)) {
    may_leave_ = true;
    return FinishLeave();
  }
  if (!is_in_view) {
    if (is_member_) Break(absl::AbortedError("this worker was given up and is no longer a member"));
    return;
  }
  if (is_member_ && registration_ && self->from_step < from_step_) {
    from_step_ = self->from_step;
    client_->LowerPulls();
  }
}

// Not while somebody still needs what is in the program's memory.
void WorkerNode::FinishLeave() {
  if (!may_leave_ || leaving_->is_done() || client_->has_offers()) return;
  client_->ForgetCopies();
  leaving_->Finish();
}

void WorkerNode::On(const TensorsRegistered& message) {
  if (!registration_ || is_member_) return;
  is_member_ = true;
  from_step_ = message.start_step;
  client_->SetTensors(message.tensors);
  client_->UseMode(consistency_);
  SendWholeIfAsked();
  BringValues(message);
}

void WorkerNode::On(const Release& message) {
  is_released_.store(message.is_released, std::memory_order_relaxed);
  log_.Info(message.is_released ? "released: leaves after this step" : "kept after all");
}

void WorkerNode::On(const Stop& message) {
  Break(message.status.ok() ? absl::CancelledError("the job ends") : message.status);
}

void WorkerNode::StartRegistration(Registration registration) {
  if (broken_.ok() && is_told_to_end_.load(std::memory_order_relaxed)) EndBeforeTheFirstStep();
  if (!broken_.ok()) return registration.pending->Fail(broken_);
  if (registration_ || is_member_) {
    return registration.pending->Fail(
        absl::FailedPreconditionError("tensors are registered once, all together"));
  }
  session_->Send(RegisterTensors{registration.specs});
  registration_ = std::move(registration);
}

// The first workers bring their own values, of which the first on the server counts; a later worker
// takes what there is. Either way the answer overwrites the caller's memory.
void WorkerNode::BringValues(const TensorsRegistered& message) {
  std::map<std::string, size_t> index_by_name;
  for (size_t i = 0; i < message.tensors.size(); ++i)
    index_by_name[message.tensors[i].spec.name] = i;
  values_missing_ = registration_->specs.size();
  for (size_t i = 0; i < registration_->specs.size(); ++i) {
    const std::string& name = registration_->specs[i].name;
    const FrameType type = message.is_fresh ? FrameType::kInit : FrameType::kPull;
    const std::span<std::byte> value = std::as_writable_bytes(registration_->values[i]);
    const auto on_done = [this](const absl::Status& status) {
      if (!status.ok() && registration_) registration_->pending->Fail(status);
      if (status.ok() && --values_missing_ == 0) ValuesInPlace();
    };
    client_->Start({.type = type,
                    .tensor = index_by_name.at(name),
                    .step = consistency_.is_sync() ? message.start_step : Step{0},
                    .source = message.is_fresh ? value : std::span<std::byte>(),
                    .target = value,
                    .priority = registration_->priorities[i],
                    .is_kept = registration_->keep_values[i],
                    .ready = dependencies_.executor.Now(),
                    .pending = std::make_shared<PendingOperation>(
                        Describe(type, name, message.start_step), on_done)});
  }
  {
    MutexLock lock(mu_);
    for (size_t i = 0; i < registration_->specs.size(); ++i) {
      const std::string& name = registration_->specs[i].name;
      tensors_[name] = {.index = index_by_name.at(name),
                        .num_values = registration_->values[i].size(),
                        .priority = registration_->priorities[i],
                        .keeps_value = registration_->keep_values[i]};
    }
  }
}

void WorkerNode::ValuesInPlace() {
  if (!consistency_.is_led()) return FinishRegistration();
  // Not from within an answer, which the client is not done with.
  dependencies_.executor.Post([this] { CatchUp(); });
}

void WorkerNode::CatchUp() {
  if (!broken_.ok() || !registration_) return;
  values_missing_ = registration_->specs.size();
  std::vector<TensorRequest> values;
  {
    MutexLock lock(mu_);
    for (size_t i = 0; i < registration_->specs.size(); ++i) {
      const std::string& name = registration_->specs[i].name;
      const auto on_done = [this](const absl::Status& status) {
        if (!status.ok() && registration_) registration_->pending->Fail(status);
        if (status.ok() && --values_missing_ == 0) FinishRegistration();
      };
      values.push_back({.type = FrameType::kPull,
                        .tensor = tensors_.at(name).index,
                        .step = {},
                        .source = {},
                        .target = std::as_writable_bytes(registration_->values[i]),
                        .priority = registration_->priorities[i],
                        .ready = dependencies_.executor.Now(),
                        .pending = std::make_shared<PendingOperation>(
                            Describe(FrameType::kPull, name, from_step_), on_done)});
    }
  }
  client_->CatchUp(values);
}

void WorkerNode::OnStepSettled(Step version) {
  if (registration_) return;  // it has no numbers yet
  MutexLock lock(mu_);
  if (numbers_.Highest() != version) numbers_.Begin(tensors_.size(), version);
}

void WorkerNode::FinishRegistration() {
  const Step start = consistency_.is_sync() ? client_->LowestVersion() : from_step_;
  {
    MutexLock lock(mu_);
    start_step_ = ProgramStep(start);
    steps_skipped_ = consistency_.steps_skipped;
    numbers_.Begin(tensors_.size(), start);
    if (samples_) samples_->SkipTo(start_step_);
  }
  log_.Info("values in place", {{"start_step", start.value()}});
  const std::shared_ptr<PendingOperation> pending = registration_->pending;
  registration_.reset();
  pending->Finish();
  ReportIfDrained();
}

void WorkerNode::Break(const absl::Status& why) {
  if (!broken_.ok()) return;
  broken_ = why;
  log_.Warning("the job cannot go on", {{"why", why.message()}});
  const absl::Status first = client_->FailAll(why);
  if (!first.ok() && !std::exchange(has_reported_failure_, true)) session_->Send(Failure{first});
  std::vector<TensorRequest> held;
  {
    MutexLock lock(mu_);
    held = std::exchange(held_, {});
  }
  for (const TensorRequest& request : held) request.pending->Fail(why);
  joining_->Fail(why);
  if (registration_) registration_->pending->Fail(why);
  if (leaving_) leaving_->Fail(why);
}

void WorkerNode::SendHeartbeat() {
  timer_ = dependencies_.executor.RunAfter(heartbeat_, [this] { SendHeartbeat(); });
  SendStats();
}

Step WorkerNode::Progress() const {
  return consistency_.is_sync() ? client_->LowestVersion()
                                : std::max(from_step_, client_->LowestClock());
}

void WorkerNode::SendStats() {
  if (is_member_ && !registration_) stats_.step = ProgramStep(Progress());
  dependencies_.metrics.SetStep(stats_.step.value());
  if (!session_->is_open()) return;
  session_->Send(Heartbeat{stats_});
  said_losses_.insert(said_losses_.end(), stats_.losses.begin(), stats_.losses.end());
  if (std::ssize(said_losses_) > kLossesKept)
    said_losses_.erase(said_losses_.begin(), said_losses_.end() - kLossesKept);
  stats_.losses.clear();
}

// ---- between two modes ----

void WorkerNode::On(const HoldSteps& message) {
  // Where its values are still on their way, its first step is the view's.
  const bool has_begun = is_member_ && !registration_;
  Step next = from_step_;
  {
    MutexLock lock(mu_);
    if (has_begun) next = numbers_.Highest();
    numbers_.HoldFrom(message.until.value_or(next));
  }
  hold_ = message;
  has_reported_hold_ = false;
  if (message.until) {
    StartHeldPushes();
    ReportIfDrained();
  } else {
    session_->Send(StepsHeld{.round = message.round, .next_step = next});
  }
}

void WorkerNode::On(const ResumeSteps& message) {
  if (!hold_ || hold_->round != message.round) return;
  hold_.reset();
  {
    MutexLock lock(mu_);
    numbers_.Resume();
  }
  StartHeldPushes();
}

void WorkerNode::TakeMode(const View& view) {
  if (view.consistency == consistency_) return;
  consistency_ = view.consistency;
  if (!is_member_ || registration_) return;
  client_->UseMode(consistency_);
  from_step_ = consistency_.from_step;
  if (consistency_.is_sync()) client_->RaiseVersions(from_step_);
  hold_.reset();
  {
    MutexLock lock(mu_);
    steps_skipped_ = consistency_.steps_skipped;
    numbers_.Begin(tensors_.size(), from_step_);
    numbers_.Resume();
  }
  log_.Info("mode", {{"name", NameOf(consistency_.mode)}, {"from_step", from_step_.value()}});
  StartHeldPushes();
}

Step WorkerNode::ProgramStep(Step step) const {
  return Step{step.value() - std::min(step.value(), consistency_.steps_skipped)};
}

void WorkerNode::StartHeldPushes() {
  std::vector<TensorRequest> due;
  {
    MutexLock lock(mu_);
    for (TensorRequest& request : std::exchange(held_, {})) {
      const std::optional<Step> step = numbers_.Take(request.tensor);
      if (step) {
        request.step = *step;
        ++pushes_posted_;
        due.push_back(std::move(request));
      } else {
        held_.push_back(std::move(request));
      }
    }
  }
  for (const TensorRequest& request : due) Run(request);
}

void WorkerNode::ReportIfDrained() {
  if (!hold_ || !hold_->until || has_reported_hold_ || registration_ || client_->has_pushes())
    return;
  {
    MutexLock lock(mu_);
    if (pushes_posted_ > 0 || !numbers_.IsAtHold()) return;
  }
  has_reported_hold_ = true;
  session_->Send(StepsHeld{.round = hold_->round, .next_step = *hold_->until, .is_drained = true});
}

// Said at once: this may be the only worker left that knows it.
void WorkerNode::OnUnevenStep(Step step) {
  log_.Info("uneven step: its chunks had different contributors",
            {{"step", ProgramStep(step).value()}});
  stats_.uneven_steps.push_back(step);
  if (stats_.uneven_steps.size() > WorkerStats::kUnevenStepsMax)
    stats_.uneven_steps.erase(stats_.uneven_steps.begin());
  SendStats();
}

void WorkerNode::OnAnswered() {
  ReportIfDrained();
}

void WorkerNode::OnPushed(absl::string_view channel, uint64_t bytes) {
  stats_.bytes_pushed += bytes;
  dependencies_.metrics.AddPushed(channel, bytes);
}

void WorkerNode::OnPulled(absl::string_view channel, uint64_t bytes) {
  stats_.bytes_pulled += bytes;
  dependencies_.metrics.AddPulled(channel, bytes);
}

void WorkerNode::OnResend() {
  ++stats_.resends;
  dependencies_.metrics.AddResend();
}

void WorkerNode::OnOverflow(const std::string& push, Codec codec, uint64_t values) {
  dependencies_.metrics.AddOverflows(values);
  log_.Warning("finite values are too large for the codec and become infinite",
               {{"what", push}, {"codec", ToString(codec)}, {"values", values}});
}

void WorkerNode::OnWaiting(const std::string& peer, const absl::Status& why, Duration lasted) {
  log_.Warning("no connection, trying again",
               {{"peer", peer}, {"why", why.message()}, {"lost_seconds", ToSeconds(lasted)}});
}

void WorkerNode::OnNotShared(const std::string& peer, const absl::Status& why) {
  if (std::exchange(has_complained_of_copies_, true)) return;
  log_.Warning("gradients are copied to a server on this host, not read where they lie",
               {{"peer", peer}, {"why", why.message()}});
}

void WorkerNode::OnCodecsTried(const CodecVerdict& verdict) {
  log_.Info(verdict.uses_codecs ? "codecs pay on this link" : "codecs do not pay, left out",
            {{"step_seconds_with", ToSeconds(verdict.with)},
             {"step_seconds_without", ToSeconds(verdict.without)}});
}

void WorkerNode::OnSynchronized(const SyncObservation& observation) {
  stats_.sync_seconds.Add(ToSeconds(observation.sync));
  for (size_t i = 0; i < kSyncPhaseCount; ++i) {
    stats_.phase_seconds[i].Add(ToSeconds(observation.phases[i]));
  }
  dependencies_.metrics.Observe(observation);
}

void WorkerNode::OnBroken(const absl::Status& why) {
  Break(why);
}

}  // namespace pushpull
