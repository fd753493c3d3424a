// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/job_reconciler.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

#include "operator/api/event.h"
#include "operator/children/job_objects.h"
#include "operator/plan/plan.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {

using std::chrono::seconds;

namespace {

// The minimum delay of a requeue, also while the caches are behind.
// For members of a job that begins again: to end a step and save it, if they can. Those that wait
// for another one, or for a coordinator, wait in vain.
constexpr std::chrono::seconds kRestartGrace{10};
constexpr seconds kRequeueMin{1};

// Healed like the kinds of objects.
constexpr char kStatus[] = "status";

bool IsForCoordinator(const Action& action) {
  return std::holds_alternative<RequestSize>(action) ||
         std::holds_alternative<RequestSync>(action) || std::holds_alternative<RequestSave>(action);
}

}  // namespace

// One reconcile of one job.
class JobReconciler::Pass {
 public:
  Pass(JobReconciler& reconciler, const ObservedJob& job, JobState& state)
      : reconciler_(reconciler),
        client_(reconciler.client_),
        options_(reconciler.options_),
        job_(job),
        state_(state),
        shown_(state.certificates.version) {}

  // Plans, and carries out the plan. If certificates cannot be read for now, or workers not be
  // scaled, the job continues with those it has; the error is returned last.
  absl::StatusOr<std::optional<seconds>> Run() {
    if (!job_.object().unreadable.empty()) return Tell();
    if (!job_.object().job.spec.suspend) state_.save.reset();
    Observation seen = Observe();
    if (const std::optional<seconds> pause = RecallStatus(seen)) return pause;
    if (seen.object.status.runtime != job_.object().status.runtime) return Restore(seen);
    const bool is_active = IsActive(seen);
    const absl::StatusOr<bool> has_changed_job = ScaleWorkers(seen);
    if (has_changed_job.value_or(false)) return kRequeueMin;
    absl::Status kept = has_changed_job.status();
    kept.Update(reconciler_.keeper_.RefreshIfDue(job_, is_active, state_.certificates));
    ShowSecret();
    if (is_active && job_.HasPods()) {
      kept.Update(reconciler_.healer_.Heal(job_, state_, healed_));
      ShowSecret();
    }
    seen.coordinator = GetReport();
    if (is_active) kept.Update(ReadRacks(seen));
    seen.obstacle = FirstObstacle();
    plan_ = Plan(seen);
    const absl::Status written = PatchStatus();
    if (absl::IsInvalidArgument(written) && IsNotingRuntime()) return HoldRuntime(written);
    PUSHPULL_RETURN_IF_ERROR(written);
    RecordEvents();
    const absl::Status acted = Act();
    TellHealed();
    if (NeedsNoKeys(seen)) kept.Update(DeleteKeys());
    PUSHPULL_RETURN_IF_ERROR(acted);
    PUSHPULL_RETURN_IF_ERROR(kept);
    std::optional<WallTime> requeue_at = plan_.requeue_at;
    if (healed_.again_at)
      requeue_at = std::min(requeue_at.value_or(WallTime::max()), *healed_.again_at);
    if (is_active && job_.HasPods() && state_.certificates.files != nullptr)
      requeue_at = std::min(requeue_at.value_or(WallTime::max()), state_.certificates.recheck_at);
    if (!requeue_at) return std::nullopt;
    return std::max(*requeue_at - job_.now, kRequeueMin);
  }

 private:
  // Only reports that the job cannot be read. How to reach its coordinator, and with which Secret,
  // is in the part that was not read.
  absl::StatusOr<std::optional<seconds>> Tell() {
    Observation seen = Observe();
    if (const std::optional<seconds> pause = RecallStatus(seen)) return pause;
    plan_ = Plan(seen);
    PUSHPULL_RETURN_IF_ERROR(PatchStatus());
    RecordEvents();
    return std::nullopt;
  }

  bool IsNotingRuntime() const {
    return plan_.status.runtime && plan_.status.runtime != job_.object().status.runtime;
  }

  // The next plan reports why.
  absl::StatusOr<std::optional<seconds>> HoldRuntime(const absl::Status& refused) {
    state_.runtime_refusal = {.record = *plan_.status.runtime,
                              .message = std::string(refused.message()),
                              .retry_at = job_.now + kRuntimeRetry};
    return kRequeueMin;
  }

  // The runtime that the job names, with what the next plan needs to know about it.
  std::optional<TrainingRuntime> Runtime() const {
    if (job_.runtime == nullptr) return std::nullopt;
    TrainingRuntime runtime = job_.runtime->value;
    const std::optional<RuntimeRefusal>& refusal = state_.runtime_refusal;
    if (refusal && refusal->record == runtime.record && job_.now < refusal->retry_at)
      runtime.problem = "cannot be used: " + refusal->message;
    return runtime;
  }

  // The job was decoded with a runtime that somebody else wrote into the status: only that is
  // undone, and the rest follows once the cache shows it.
  absl::StatusOr<std::optional<seconds>> Restore(const Observation& seen) {
    plan_.status = seen.object.status;
    PUSHPULL_RETURN_IF_ERROR(PatchStatus());
    TellHealed();
    return kRequeueMin;
  }

  // Plans start from the status that the operator wrote, not from others' changes to it. If
  // somebody changes it again and again, the job waits; returns for how long.
  std::optional<seconds> RecallStatus(Observation& seen) {
    if (!IsManaged(seen)) return std::nullopt;
    const TrainingJobStatus& observed = job_.object().status;
    seen.object.status = state_.status.Recall(observed);
    if (seen.object.status == observed) return std::nullopt;
    const WallTime heal_at = state_.children.HealAt(kStatus);
    if (job_.now < heal_at) return heal_at - job_.now;
    state_.children.OnHealed(kStatus, job_.now);
    healed_.notes[kStatus] = "the status was changed by somebody else and says again what is true";
    return std::nullopt;
  }

  // Returns whether the job's spec was changed: the caches must show that first.
  absl::StatusOr<bool> ScaleWorkers(const Observation& seen) {
    state_.scale_obstacle.reset();
    if (!IsManaged(seen) || !seen.object.problems.empty() || NeedsRuntime(seen)) return false;
    absl::StatusOr<WorkerScaler::Outcome> scaled = reconciler_.scaler_.Scale(job_, state_);
    if (absl::IsAlreadyExists(scaled.status()) || absl::IsPermissionDenied(scaled.status())) {
      // Only scaling through this object fails.
      state_.scale_obstacle = ObstacleOf(scaled.status());
      return false;
    }
    PUSHPULL_RETURN_IF_ERROR(scaled.status());
    if (scaled->has_changed_job)
      state_.expectations.ExpectUpdate(job_.meta().resource_version, job_.now);
    if (!scaled->note.empty()) healed_.notes[TrainingJobWorkersType().plural] = scaled->note;
    return scaled->has_changed_job;
  }

  // Without racks, the members continue as if there were only one.
  absl::Status ReadRacks(Observation& seen) {
    absl::Status read = reconciler_.racks_.Read(job_, seen.racks);
    if (!absl::IsPermissionDenied(read)) return read;
    rack_obstacle_ = {.reason = "Forbidden",
                      .message = absl::StrCat("spec.workers.topologyKey has no effect, because the "
                                              "operator may not read nodes: ",
                                              read.message())};
    return absl::OkStatus();
  }

  std::optional<Obstacle> FirstObstacle() const {
    if (state_.scale_obstacle) return state_.scale_obstacle;
    if (state_.certificates.obstacle) return state_.certificates.obstacle;
    if (state_.creation.obstacle()) return state_.creation.obstacle();
    return state_.heal_obstacle ? state_.heal_obstacle : rack_obstacle_;
  }

  // What was just read or written is not somebody else's change.
  void ShowSecret() {
    const CertificateState& certificates = state_.certificates;
    if (certificates.version.empty() || shown_ == certificates.version) return;
    shown_ = certificates.version;
    reconciler_.children_.SetSecret(
        {.object_namespace = job_.key().object_namespace, .name = certificates.secret},
        certificates.version);
  }

  absl::Status DeleteKeys() {
    if (state_.has_no_keys) return absl::OkStatus();
    absl::Status deleted = reconciler_.keeper_.DeleteOwn(job_);
    state_.has_no_keys = deleted.ok();
    return deleted;
  }

  void TellHealed() {
    for (const auto& [what, note] : healed_.notes) {
      const Event event{
          .kind = Event::Kind::kWarning, .reason = "Healed", .action = "Heal", .note = note};
      const std::string name =
          absl::StrCat(job_.key().name, ".", what, ".", job_.now.time_since_epoch().count());
      if (const auto write = state_.events.Record(event, name, job_.now)) WriteEvent(event, *write);
    }
  }

  Observation Observe() const {
    Observation seen{.meta = job_.meta(),
                     .object = job_.object(),
                     .sync_refusal = state_.sync_refusal,
                     .save = state_.save,
                     .save_time = state_.save_time,
                     .progress_time = state_.progress_time,
                     .refusal = state_.creation.refusal(),
                     .unused_term = state_.creation.unused_term(),
                     .now = job_.now};
    seen.runtime = Runtime();
    for (const PodStore::Pointer& pod : job_.pods)
      seen.pods.push_back({.meta = pod->meta, .pod = pod->value});
    return seen;
  }

  // Blocks on the coordinator, and on the API server if the certificates may have changed. Nothing:
  // there is no coordinator, it did not answer, or it is another job's.
  std::optional<CoordinatorReport> GetReport() {
    const Stored<Pod>* pod = job_.Coordinator();
    if (pod == nullptr || !state_.backoff.MayAsk(pod->meta.uid, job_.now)) return std::nullopt;
    absl::StatusOr<CoordinatorReport> report = Ask();
    if (absl::IsUnavailable(report.status()) &&
        reconciler_.keeper_.RefreshAfterRefusal(job_, state_.certificates))
      report = Ask();
    if (absl::IsDeadlineExceeded(report.status()))
      state_.backoff.OnTimeout(pod->meta.uid, job_.now);
    if (!report.ok()) return std::nullopt;
    state_.backoff.OnAnswer();
    // The address may belong to another pod by now.
    if (report->job != job_.key().name) return std::nullopt;
    return *std::move(report);
  }

  absl::StatusOr<CoordinatorReport> Ask() {
    PUSHPULL_ASSIGN_OR_RETURN(const CoordinatorEndpoint endpoint, Endpoint());
    return reconciler_.coordinators_.GetStatus(endpoint, CoordinatorDeadline());
  }

  // Sends a RequestSize, RequestSync or RequestSave. Blocks. kUnavailable: no coordinator can be
  // reached; otherwise the errors of JobCoordinator.
  absl::Status Send(const Action& action) {
    PUSHPULL_ASSIGN_OR_RETURN(const CoordinatorEndpoint endpoint, Endpoint());
    JobCoordinator& coordinators = reconciler_.coordinators_;
    if (const auto* size = std::get_if<RequestSize>(&action))
      return coordinators.Resize(endpoint, *size, CoordinatorDeadline());
    if (const auto* sync = std::get_if<RequestSync>(&action)) {
      const absl::Status set = coordinators.SetSync(endpoint, *sync, CoordinatorDeadline());
      state_.sync_refusal.reset();
      if (!absl::IsInvalidArgument(set)) return set;
      state_.sync_refusal = {.asked = sync->sync, .message = std::string(set.message())};
      return AsUsersMistake(set);
    }
    PUSHPULL_ASSIGN_OR_RETURN(state_.save, coordinators.Save(endpoint, CoordinatorDeadline()));
    state_.save_time = job_.now;
    return absl::OkStatus();
  }

  // Where to reach the coordinator: its pod's address, not the name of the Service, so that it is
  // this coordinator and not an earlier one, and no name resolution is needed.
  absl::StatusOr<CoordinatorEndpoint> Endpoint() const {
    const Stored<Pod>* pod = job_.Coordinator();
    if (pod == nullptr) return absl::UnavailableError("the job has no ready coordinator");
    if (state_.certificates.secret != job_.Secret())
      return absl::UnavailableError("the certificates for calls to the coordinator are missing");
    return CoordinatorEndpoint{.address = CoordinatorAddressAt(pod->value.ip),
                               .tls = state_.certificates.files};
  }

  pushpull::Deadline CoordinatorDeadline() const {
    return pushpull::Deadline(reconciler_.time_.Now() + options_.coordinator_time);
  }

  absl::Status PatchStatus() {
    const std::string& version = job_.meta().resource_version;
    const std::string patch = StatusPatchText(job_.object().status, plan_.status, version);
    if (patch.empty()) return absl::OkStatus();
    state_.status.OnWrite(plan_.status);
    PUSHPULL_RETURN_IF_ERROR(
        client_.MergePatch(TrainingJobType(), job_.key(), patch, "status", client_.CallDeadline())
            .status());
    state_.status.OnWritten();
    state_.expectations.ExpectUpdate(version, job_.now);
    if (plan_.status.progress != job_.object().status.progress) state_.progress_time = job_.now;
    return absl::OkStatus();
  }

  // Only a status that was written has events, so they are named after the version that it
  // replaced: recorded again, they have the same names.
  void RecordEvents() {
    int number = 0;
    for (const Event& event : plan_.events) {
      if (event.action == kRestartAction && options_.on_restart) options_.on_restart(event.reason);
      const std::string name =
          absl::StrCat(job_.key().name, ".", job_.meta().resource_version, ".", ++number);
      const auto write = state_.events.Record(event, name, job_.now);
      if (write) WriteEvent(event, *write);
    }
  }

  // Best effort: an event that cannot be written causes no failure.
  void WriteEvent(const Event& event, const EventWrite& write) {
    const ObjectKey key{.object_namespace = job_.key().object_namespace, .name = write.name};
    const pushpull::Deadline deadline = client_.CallDeadline();
    absl::StatusOr<ObjectMeta> written;
    if (write.count > 1) {
      const std::string patch = EventSeriesText(write.count, job_.now);
      written = client_.MergePatch(EventType(), key, patch, "", deadline);
    } else {
      const std::string text = NewEventText(key, event, job_.meta(), options_.instance, job_.now);
      written = client_.Create(EventType(), key.object_namespace, text, DryRun::kNo, deadline);
    }
    written.status().IgnoreError();
  }

  // Carries out the actions in order. Returns the first error: after one from the coordinator the
  // other actions are still carried out; any other error ends the pass.
  absl::Status Act() {
    absl::Status first;
    bool has_refreshed = false;
    for (const Action& action : plan_.actions) {
      absl::Status done;
      // Before the first pod, the Secret is read or written: a pod does not start without it.
      if (const auto* create = std::get_if<CreatePod>(&action)) {
        state_.creation.Begin(create->term);
        if (!std::exchange(has_refreshed, true))
          done = reconciler_.keeper_.Refresh(job_, MembersToCreate(), state_.certificates);
        ShowSecret();
      }
      if (done.ok()) done = ActOnce(action);
      first.Update(done);
      if (!done.ok() && !IsForCoordinator(action)) break;
    }
    return first;
  }

  std::vector<MemberId> MembersToCreate() const {
    std::vector<MemberId> members;
    for (const Action& action : plan_.actions) {
      if (const auto* create = std::get_if<CreatePod>(&action)) members.push_back(create->member);
    }
    return members;
  }

  absl::Status ActOnce(const Action& action) {
    if (const auto* create = std::get_if<CreatePod>(&action)) {
      const absl::StatusOr<ObjectMeta> created = Create(*create);
      state_.creation.End(created.status(), create->term);
      if (created.ok()) state_.expectations.ExpectPod(*created, job_.now);
      const bool is_users =
          absl::IsInvalidArgument(created.status()) || absl::IsAlreadyExists(created.status());
      return is_users ? AsUsersMistake(created.status()) : created.status();
    }
    if (const auto* pod = std::get_if<DeletePod>(&action)) {
      DeleteOptions options{.uid = pod->uid};
      if (pod->grace == DeletePod::Grace::kNone) options.grace = seconds(0);
      if (pod->grace == DeletePod::Grace::kRestart) options.grace = kRestartGrace;
      return Delete(
          PodType(), {.object_namespace = job_.key().object_namespace, .name = pod->name}, options);
    }
    if (const auto* heal = std::get_if<HealLabels>(&action))
      return reconciler_.healer_.HealPod(*heal, job_, state_, healed_);
    if (const auto* whole = std::get_if<DeleteJob>(&action)) {
      return Delete(
          TrainingJobType(), job_.key(), {.uid = whole->uid, .propagation = "Background"});
    }
    return Send(action);
  }

  // With the coordinator, also the objects of which the job has one each. A pod of every role is
  // tried before anything runs, so that a mistake in the workers' template is found before servers
  // start for them.
  absl::StatusOr<ObjectMeta> Create(const CreatePod& create) {
    ObjectMaker& maker = reconciler_.maker_;
    CreationState& creation = state_.creation;
    if (create.member.role == pushpull::JobRole::kCoordinator) {
      for (const JobObject& object : maker.ObjectsOf(job_.meta(), job_.object())) {
        PUSHPULL_RETURN_IF_ERROR(reconciler_.healer_.Ensure(object, job_, state_).status());
      }
      if (!creation.is_tried())
        PUSHPULL_RETURN_IF_ERROR(maker.DryRunPods(job_.meta(), job_.object()));
      creation.OnTried();
      creation.OnCoordinatorRequest();
    }
    return maker.EnsurePod(job_.meta(),
                           job_.object(),
                           {.member = create.member,
                            .term = create.term,
                            .goes_on = plan_.status.checkpoint.has_value()});
  }

  // An object that is missing, or a different one by now, counts as deleted.
  absl::Status Delete(const ResourceType& type,
                      const ObjectKey& key,
                      const DeleteOptions& options) {
    const absl::Status deleted = client_.Delete(type, key, options, client_.CallDeadline());
    return absl::IsNotFound(deleted) || absl::IsAborted(deleted) ? absl::OkStatus() : deleted;
  }

  JobReconciler& reconciler_;
  KubeClient& client_;
  const ReconcilerOptions& options_;
  const ObservedJob& job_;
  JobState& state_;
  JobPlan plan_;
  Healed healed_;
  std::string shown_;  // version of the Secret in the cache
  std::optional<Obstacle> rack_obstacle_;
};

JobReconciler::JobReconciler(KubeClient& client,
                             const pushpull::TimeSource& time,
                             const JobCaches& caches,
                             JobCoordinator& coordinators,
                             ReconcilerOptions options)
    : client_(client),
      time_(time),
      jobs_(caches.jobs),
      pods_(caches.pods),
      runtimes_(caches.runtimes),
      children_(caches.children),
      coordinators_(coordinators),
      options_(std::move(options)),
      maker_(client, options_.pods),
      keeper_(client, options_.certificate_lifetime),
      healer_(maker_, keeper_, children_),
      scaler_(client, caches.workers),
      racks_(client) {}

absl::StatusOr<std::optional<seconds>> JobReconciler::Reconcile(const ObjectKey& key) {
  const JobStore::Pointer stored = jobs_.Find(key);
  if (stored == nullptr) {
    pushpull::MutexLock lock(mu_);
    states_.erase(key);
    return std::nullopt;
  }
  const ObservedJob job{.stored = *stored,
                        .runtime = RuntimeOf(*stored),
                        .pods = pods_.FindByIndex(ToString(key)),
                        .now = options_.now()};
  JobState state = Recall(key, stored->meta.uid);
  absl::StatusOr<std::optional<seconds>> requeue_after = kRequeueMin;
  if (state.expectations.AreMet(job)) requeue_after = Pass(*this, job, state).Run();
  {
    pushpull::MutexLock lock(mu_);
    states_[key] = std::move(state);
  }
  // The job was deleted after the cache saw it: the watch reports that, and nothing is left to do.
  const absl::Status& status = requeue_after.status();
  if (!status.ok() && (IsAboutDeleted(status) || !IsThere(stored->meta))) return std::nullopt;
  return requeue_after;
}

JobState JobReconciler::Recall(const ObjectKey& key, const std::string& uid) {
  pushpull::MutexLock lock(mu_);
  const auto found = states_.find(key);
  if (found != states_.end() && found->second.uid == uid) return found->second;
  return {.uid = uid};
}

RuntimeStore::Pointer JobReconciler::RuntimeOf(const Stored<TrainingJobObject>& job) const {
  const std::string& name = job.value.runtime;
  if (name.empty()) return nullptr;
  return runtimes_.Find({.object_namespace = job.meta.key.object_namespace, .name = name});
}

bool JobReconciler::IsThere(const ObjectMeta& job) const {
  const JobStore::Pointer now = jobs_.Find(job.key);
  return now != nullptr && now->meta.uid == job.uid && !now->meta.is_deleting;
}

}  // namespace pushpull_operator
