// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/job_watch.h"

#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/api/member.h"
#include "operator/children/job_objects.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {

namespace {

// If an object's label has changed, both jobs are notified.
template <typename T>
void Tell(const OnJobChange& on_change, const Stored<T>* old, const Stored<T>* now) {
  const std::string before = old == nullptr ? "" : JobOf(old->meta);
  const std::string after = now == nullptr ? "" : JobOf(now->meta);
  if (!before.empty()) on_change(before);
  if (!after.empty() && after != before) on_change(after);
}

Selection Ours(const std::string& object_namespace) {
  return {.object_namespace = object_namespace,
          .label_selector = absl::StrCat(kManagedByLabel, "=", kManagedBy)};
}

}  // namespace

JobWatch::JobWatch(KubeClient& client,
                   PausingTime& time,
                   const std::string& object_namespace,
                   const OnJobChange& on_change,
                   SecretPace secret_pace,
                   pushpull::Log log)
    : log_(std::move(log)),
      jobs_({.decode = DecodeTrainingJobObject,
             .on_change =
                 [on_change](const auto* old, const auto* now) {
                   on_change(ToString((now == nullptr ? old : now)->meta.key));
                 }}),
      pods_({.decode = DecodePod,
             .index = JobOf,
             .on_change = [on_change](const auto* old,
                                      const auto* now) { Tell(on_change, old, now); }}),
      workers_({.decode = DecodeTrainingJobWorkers,
                .on_change =
                    [on_change](const auto* old, const auto* now) {
                      on_change(ToString((now == nullptr ? old : now)->meta.key));
                    }}),
      runtimes_({.decode = DecodeTrainingRuntimeObject,
                 .on_change =
                     [this, on_change](const auto* old, const auto* now) {
                       TellUsers((now == nullptr ? old : now)->meta.key, on_change);
                     }}),
      children_(on_change),
      job_reflector_(client,
                     time,
                     jobs_,
                     OptionsFor(TrainingJobType(), {.object_namespace = object_namespace})),
      pod_reflector_(client, time, pods_, OptionsFor(PodType(), Ours(object_namespace))),
      workers_reflector_(
          client,
          time,
          workers_,
          OptionsFor(TrainingJobWorkersType(), {.object_namespace = object_namespace})),
      runtime_reflector_(client,
                         time,
                         runtimes_,
                         OptionsFor(TrainingRuntimeType(), {.object_namespace = object_namespace})),
      secret_poll_(client, time, jobs_, children_, secret_pace) {
  for (const ResourceType& type : WatchedChildren()) {
    Selection selection = Ours(object_namespace);
    selection.has_only_metadata = true;
    child_reflectors_.push_back(std::make_unique<Reflector>(
        client, time, children_.StoreOf(type), OptionsFor(type, std::move(selection))));
  }
}

JobWatch::~JobWatch() {
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

void JobWatch::Start() {
  StartThread("op-watch-jobs", [this] { job_reflector_.Run(stop_); });
  StartThread("op-watch-pods", [this] { pod_reflector_.Run(stop_); });
  StartThread("op-watch-more", [this] { workers_reflector_.Run(stop_); });
  StartThread("op-watch-more", [this] { runtime_reflector_.Run(stop_); });
  for (const std::unique_ptr<Reflector>& reflector : child_reflectors_)
    StartThread("op-watch-more", [this, &reflector] { reflector->Run(stop_); });
  StartThread("op-secrets", [this] { secret_poll_.Run(stop_); });
}

void JobWatch::StartThread(const std::string& name, std::function<void()> run) {
  threads_.emplace_back([name, run = std::move(run)] {
    pthread_setname_np(pthread_self(), name.c_str());
    run();
  });
}

void JobWatch::TellUsers(const ObjectKey& runtime, const OnJobChange& on_change) const {
  for (const JobStore::Pointer& job : jobs_.All()) {
    const bool is_here = job->meta.key.object_namespace == runtime.object_namespace;
    if (is_here && job->value.runtime == runtime.name) on_change(ToString(job->meta.key));
  }
}

absl::Status JobWatch::AwaitSynced(pushpull::Deadline deadline) const {
  PUSHPULL_RETURN_IF_ERROR(jobs_.AwaitSynced(deadline));
  PUSHPULL_RETURN_IF_ERROR(pods_.AwaitSynced(deadline));
  return children_.AwaitSynced(deadline);
}

ReflectorOptions JobWatch::OptionsFor(const ResourceType& type, Selection selection) const {
  return {.type = type,
          .selection = std::move(selection),
          .on_error = [this, plural = type.plural](const absl::Status& status) {
            log_.Warning("watch failed", {{"kind", plural}, {"why", status.message()}});
          }};
}

}  // namespace pushpull_operator
