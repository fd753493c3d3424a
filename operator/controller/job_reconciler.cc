// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/job_reconciler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/api/event.h"
#include "operator/api/member.h"
#include "operator/children/tls_secret.h"
#include "operator/plan/plan.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {

using std::chrono::seconds;

namespace {

// How long a cache may take to show what was written. Longer ones are taken at their word: the
// object is gone again.
constexpr seconds kCacheLagMax{10};
constexpr seconds kSoon{1};
// How long a coordinator that does not answer is left alone: twice as long each time.
constexpr seconds kSilencePauseMin{4};
constexpr seconds kSilencePauseMax{32};
// Between two reads of the Secret of a job whose coordinator refuses connections.
constexpr seconds kRereadPause{30};

bool IsForCoordinator(const Action& action) {
  return std::holds_alternative<AskSize>(action) || std::holds_alternative<AskSync>(action) ||
         std::holds_alternative<AskSave>(action);
}

// What the next plan shall hear of an object that could not be made.
std::optional<Obstacle> ObstacleOf(const absl::Status& status) {
  const char* reason = absl::IsAlreadyExists(status)      ? "NameConflict"
                       : absl::IsPermissionDenied(status) ? "Forbidden"
                                                          : nullptr;
  if (reason == nullptr) return std::nullopt;
  return Obstacle{.reason = reason, .message = std::string(status.message())};
}

// The same of certificates.
std::optional<Obstacle> NoCertificates(const absl::Status& status) {
  if (!absl::IsNotFound(status)) return ObstacleOf(status);
  return Obstacle{.reason = "SecretMissing", .message = std::string(status.message())};
}

}  // namespace

struct JobReconciler::Job {
  const Stored<TrainingJobObject>& stored;
  std::vector<PodStore::Pointer> pods;
  WallTime now;
  const ObjectMeta& meta() const { return stored.meta; }
  const ObjectKey& key() const { return stored.meta.key; }
  // Its coordinator's pod, as far as it can be talked to; may be null.
  const Stored<Pod>* Coordinator() const;
  bool HasPods() const;
  // Empty: its members have no TLS.
  std::string Secret() const { return TlsSecretName(key().name, stored.value.job.spec.security); }
};

const Stored<Pod>* JobReconciler::Job::Coordinator() const {
  const std::string name = PodName(key().name, {});
  for (const PodStore::Pointer& pod : pods) {
    const bool is_it = pod->meta.key.name == name && pod->meta.controller_uid == meta().uid;
    if (is_it && pod->value.is_ready && !pod->value.ip.empty() && !pod->meta.is_deleting)
      return pod.get();
  }
  return nullptr;
}

bool JobReconciler::Job::HasPods() const {
  return std::any_of(pods.begin(), pods.end(), [&](const PodStore::Pointer& pod) {
    return pod->meta.controller_uid == meta().uid;
  });
}

std::string PodIndex(const ObjectMeta& pod) {
  const auto job = pod.labels.find(kJobLabel);
  if (job == pod.labels.end()) return "";
  return ToString(ObjectKey{.object_namespace = pod.key.object_namespace, .name = job->second});
}

JobReconciler::JobReconciler(KubeClient& client,
                             const pushpull::TimeSource& time,
                             const JobStore& jobs,
                             const PodStore& pods,
                             JobCoordinator& coordinators,
                             ReconcilerOptions options)
    : client_(client),
      time_(time),
      jobs_(jobs),
      pods_(pods),
      coordinators_(coordinators),
      options_(std::move(options)),
      maker_(client, time, options_.pods, options_.call_time),
      keeper_(client, time, options_.certificate_life, options_.call_time) {}

absl::StatusOr<std::optional<seconds>> JobReconciler::Reconcile(const ObjectKey& key) {
  const JobStore::Pointer stored = jobs_.Find(key);
  if (stored == nullptr) {
    pushpull::MutexLock lock(mu_);
    memory_.erase(key);
    return std::nullopt;
  }
  const Job job{.stored = *stored, .pods = pods_.FindByIndex(ToString(key)), .now = options_.now()};
  Memory memory = Recall(key, stored->meta.uid);
  absl::StatusOr<std::optional<seconds>> again = kSoon;
  if (!AreCachesBehind(job, memory)) again = CarryOut(job, memory);
  Remember(key, std::move(memory));
  return again;
}

JobReconciler::Memory JobReconciler::Recall(const ObjectKey& key, const std::string& uid) {
  pushpull::MutexLock lock(mu_);
  const auto found = memory_.find(key);
  if (found != memory_.end() && found->second.job_uid == uid) return found->second;
  return {.job_uid = uid};
}

void JobReconciler::Remember(const ObjectKey& key, Memory memory) {
  pushpull::MutexLock lock(mu_);
  memory_[key] = std::move(memory);
}

bool JobReconciler::AreCachesBehind(const Job& job, Memory& memory) const {
  for (const PodStore::Pointer& pod : job.pods) {
    const auto made = memory.made_pods.find(pod->meta.key.name);
    if (made != memory.made_pods.end() && made->second == pod->meta.uid)
      memory.made_pods.erase(made);
  }
  if (job.now >= memory.trust_caches_at) {
    memory.made_pods.clear();
    memory.replaced_version.clear();
  }
  return !memory.made_pods.empty() || job.meta().resource_version == memory.replaced_version;
}

absl::Status JobReconciler::KeepCertificates(const Job& job,
                                             const Observation& seen,
                                             Memory& memory) {
  // A job without pods has them looked at before its first one; one that has ended needs no new
  // ones, but its coordinator may still be asked.
  if (!IsInWork(seen)) {
    if (job.Coordinator() == nullptr) memory.certificates = {};
    return absl::OkStatus();
  }
  const bool is_known =
      memory.certificates.secret == job.Secret() && job.now < memory.certificates.look_at;
  return is_known || !job.HasPods() ? absl::OkStatus() : LookAtCertificates(job, memory);
}

// Those known before stay in use where this fails.
absl::Status JobReconciler::LookAtCertificates(const Job& job, Memory& memory) {
  absl::StatusOr<MemberCertificates> kept =
      keeper_.Keep(job.meta(), job.stored.value.job.spec.security, job.now);
  memory.no_certificates = NoCertificates(kept.status());
  PUSHPULL_RETURN_IF_ERROR(kept.status());
  memory.certificates = *std::move(kept);
  return absl::OkStatus();
}

// By the address of its pod, not by the name of the Service: it is that of this coordinator and of
// no earlier one, and needs no resolver.
absl::StatusOr<CoordinatorPlace> JobReconciler::PlaceOf(const Job& job,
                                                        const Stored<Pod>& pod,
                                                        const Memory& memory) const {
  if (memory.certificates.secret != job.Secret())
    return absl::UnavailableError("the certificates to ask the job's coordinator with are missing");
  return CoordinatorPlace{.address = CoordinatorAddressAt(pod.value.ip),
                          .tls = memory.certificates.files};
}

// One that refuses the certificates may have others than the operator remembers.
absl::StatusOr<CoordinatorWord> JobReconciler::AskAt(const Job& job,
                                                     const Stored<Pod>& pod,
                                                     Memory& memory) {
  absl::StatusOr<CoordinatorPlace> place = PlaceOf(job, pod, memory);
  PUSHPULL_RETURN_IF_ERROR(place.status());
  const std::shared_ptr<const pushpull::TlsFiles> tried = place->tls;
  absl::StatusOr<CoordinatorWord> word = coordinators_.Ask(*place, CoordinatorDeadline());
  const bool may_differ =
      absl::IsUnavailable(word.status()) && tried != nullptr && job.now >= memory.reread_at;
  if (!may_differ) return word;
  memory.reread_at = job.now + kRereadPause;
  if (!LookAtCertificates(job, memory).ok()) return word;
  place = PlaceOf(job, pod, memory);
  if (!place.ok() || *place->tls == *tried) return word;
  return coordinators_.Ask(*place, CoordinatorDeadline());
}

std::optional<CoordinatorWord> JobReconciler::Ask(const Job& job, Memory& memory) {
  const Stored<Pod>* pod = job.Coordinator();
  if (pod == nullptr) return std::nullopt;
  const bool was_silent = memory.silent_uid == pod->meta.uid;
  if (was_silent && job.now < memory.ask_again_at) return std::nullopt;
  absl::StatusOr<CoordinatorWord> word = AskAt(job, *pod, memory);
  if (word.ok()) {
    memory.silent_uid.clear();
    // The address may have gone to another pod meanwhile.
    if (word->job == job.key().name) return *std::move(word);
  }
  if (absl::IsDeadlineExceeded(word.status())) {
    memory.silent_pause =
        was_silent ? std::min(2 * memory.silent_pause, kSilencePauseMax) : kSilencePauseMin;
    memory.silent_uid = pod->meta.uid;
    memory.ask_again_at = job.now + memory.silent_pause;
  }
  return std::nullopt;
}

// A job whose certificates cannot be had for now goes on with what it has.
absl::StatusOr<std::optional<seconds>> JobReconciler::CarryOut(const Job& job, Memory& memory) {
  if (!job.stored.value.job.spec.suspend) memory.save.reset();
  Observation seen{.meta = job.meta(),
                   .object = job.stored.value,
                   .save = memory.save,
                   .news_time = memory.news_time,
                   .refusal = memory.refusal,
                   .unused_term = memory.unused_term,
                   .now = job.now};
  for (const PodStore::Pointer& pod : job.pods)
    seen.pods.push_back({.meta = pod->meta, .pod = pod->value});
  const absl::Status kept = KeepCertificates(job, seen, memory);
  seen.coordinator = Ask(job, memory);
  seen.obstacle = memory.no_certificates ? memory.no_certificates : memory.obstacle;
  const JobPlan plan = Plan(seen);
  PUSHPULL_RETURN_IF_ERROR(Write(job, plan, memory));
  Tell(job, plan, memory);
  PUSHPULL_RETURN_IF_ERROR(DoAll(job, plan, memory));
  PUSHPULL_RETURN_IF_ERROR(kept);
  return NextLookAt(job, seen, plan, memory);
}

std::optional<seconds> JobReconciler::NextLookAt(const Job& job,
                                                 const Observation& seen,
                                                 const JobPlan& plan,
                                                 const Memory& memory) const {
  std::optional<WallTime> when = plan.look_again;
  if (IsInWork(seen) && job.HasPods() && memory.certificates.files != nullptr)
    when = std::min(when.value_or(WallTime::max()), memory.certificates.look_at);
  if (!when) return std::nullopt;
  return std::max(*when - job.now, kSoon);
}

absl::Status JobReconciler::Write(const Job& job, const JobPlan& plan, Memory& memory) {
  const std::string patch =
      StatusPatchText(job.stored.value.status, plan.status, job.meta().resource_version);
  if (patch.empty()) return absl::OkStatus();
  PUSHPULL_RETURN_IF_ERROR(
      client_
          .MergePatch(
              TrainingJobType(), job.key(), patch, {.subresource = "status"}, CallDeadline())
          .status());
  memory.replaced_version = job.meta().resource_version;
  memory.trust_caches_at = job.now + kCacheLagMax;
  if (plan.status.progress != job.stored.value.status.progress) memory.news_time = job.now;
  return absl::OkStatus();
}

// Only a status that was written has events, so the version that it replaced names them: told
// again, they are the same.
void JobReconciler::Tell(const Job& job, const JobPlan& plan, Memory& memory) {
  int number = 0;
  for (const Event& event : plan.events) {
    if (event.action == kRestartAction && options_.on_restart) options_.on_restart(event.reason);
    const std::string name =
        absl::StrCat(job.key().name, ".", job.meta().resource_version, ".", ++number);
    const auto write = memory.events.Record(event, name, job.now);
    if (write) Tell(job, event, *write);
  }
}

// One that cannot be written is nobody's misfortune.
void JobReconciler::Tell(const Job& job, const Event& event, const EventWrite& write) {
  const ObjectKey key{.object_namespace = job.key().object_namespace, .name = write.name};
  if (write.count > 1) {
    return client_
        .MergePatch(EventType(), key, EventSeriesText(write.count, job.now), {}, CallDeadline())
        .status()
        .IgnoreError();
  }
  client_
      .Create(EventType(),
              key.object_namespace,
              NewEventText(key, event, job.meta(), options_.instance, job.now),
              DryRun::kNo,
              CallDeadline())
      .status()
      .IgnoreError();
}

// A coordinator that refuses does not keep pods from coming and going. Before the first pod the
// Secret is looked at: a pod does not start without it.
absl::Status JobReconciler::DoAll(const Job& job, const JobPlan& plan, Memory& memory) {
  absl::Status first;
  bool has_looked = false;
  for (const Action& action : plan.actions) {
    absl::Status done;
    if (const auto* create = std::get_if<CreatePod>(&action)) {
      if (create->term > 0) memory.unused_term = create->term;
      if (!std::exchange(has_looked, true)) done = LookAtCertificates(job, memory);
    }
    if (done.ok()) done = Do(job, plan, action, memory);
    first.Update(done);
    if (!done.ok() && !IsForCoordinator(action)) break;
  }
  return first;
}

absl::Status JobReconciler::Do(const Job& job,
                               const JobPlan& plan,
                               const Action& action,
                               Memory& memory) {
  if (const auto* create = std::get_if<CreatePod>(&action)) return Make(job, plan, *create, memory);
  if (const auto* remove = std::get_if<DeletePod>(&action)) {
    DeleteOptions options{.uid = remove->uid};
    if (remove->grace == DeletePod::Grace::kNone) options.grace = seconds(0);
    return Remove(
        PodType(), {.object_namespace = job.key().object_namespace, .name = remove->name}, options);
  }
  if (const auto* remove = std::get_if<DeleteJob>(&action)) {
    return Remove(TrainingJobType(), job.key(), {.uid = remove->uid, .propagation = "Background"});
  }
  return AskCoordinator(job, action, memory);
}

absl::Status JobReconciler::AskCoordinator(const Job& job, const Action& action, Memory& memory) {
  const Stored<Pod>* pod = job.Coordinator();
  if (pod == nullptr) return absl::UnavailableError("the job's coordinator is not there");
  PUSHPULL_ASSIGN_OR_RETURN(const CoordinatorPlace place, PlaceOf(job, *pod, memory));
  if (const auto* size = std::get_if<AskSize>(&action))
    return coordinators_.Resize(place, *size, CoordinatorDeadline());
  if (const auto* sync = std::get_if<AskSync>(&action))
    return coordinators_.SetSync(place, *sync, CoordinatorDeadline());
  PUSHPULL_ASSIGN_OR_RETURN(memory.save, coordinators_.Save(place, CoordinatorDeadline()));
  return absl::OkStatus();
}

absl::Status JobReconciler::Make(const Job& job,
                                 const JobPlan& plan,
                                 const CreatePod& create,
                                 Memory& memory) {
  const auto made = MakeAll(job, plan, create, memory);
  const bool is_refused = absl::IsPermissionDenied(made.status());
  if (is_refused && create.term > 0) memory.unused_term = create.term;
  memory.obstacle = ObstacleOf(made.status());
  if (absl::IsInvalidArgument(made.status())) memory.refusal = std::string(made.status().message());
  PUSHPULL_RETURN_IF_ERROR(made.status());
  memory.made_pods[made->key.name] = made->uid;
  memory.trust_caches_at = job.now + kCacheLagMax;
  return absl::OkStatus();
}

// With the coordinator, what the job has once. Templates are tried before anything runs, so that a
// mistake in the workers' is not found when servers have been started for them.
absl::StatusOr<ObjectMeta> JobReconciler::MakeAll(const Job& job,
                                                  const JobPlan& plan,
                                                  const CreatePod& create,
                                                  Memory& memory) {
  if (create.member.role == pushpull::JobRole::kCoordinator) {
    PUSHPULL_RETURN_IF_ERROR(maker_.MakeJobObjects(job.meta(), job.stored.value));
    if (!memory.has_tried_pods)
      PUSHPULL_RETURN_IF_ERROR(maker_.TryPods(job.meta(), job.stored.value));
    memory.has_tried_pods = true;
    memory.unused_term.reset();  // as far as anybody knows from now on
  }
  return maker_.MakePod(job.meta(),
                        job.stored.value,
                        {.member = create.member,
                         .term = create.term,
                         .goes_on = plan.status.checkpoint.has_value()});
}

// What is gone, or another object by now, is what was wanted.
absl::Status JobReconciler::Remove(const ResourceType& type,
                                   const ObjectKey& key,
                                   const DeleteOptions& options) {
  const absl::Status removed = client_.Delete(type, key, options, CallDeadline());
  return absl::IsNotFound(removed) || absl::IsAborted(removed) ? absl::OkStatus() : removed;
}

pushpull::Deadline JobReconciler::CallDeadline() const {
  return pushpull::Deadline(time_.Now() + options_.call_time);
}

pushpull::Deadline JobReconciler::CoordinatorDeadline() const {
  return pushpull::Deadline(time_.Now() + options_.coordinator_time);
}

}  // namespace pushpull_operator
