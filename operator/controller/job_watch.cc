// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/job_watch.h"

#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/api/member.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {

JobWatch::JobWatch(KubeClient& client,
                   PausingTime& time,
                   const std::string& object_namespace,
                   const OnJobChange& on_change,
                   pushpull::Log log)
    : log_(std::move(log)),
      jobs_({.decode = DecodeTrainingJobObject,
             .on_change =
                 [on_change](const auto* old, const auto* now) {
                   on_change(ToString((now == nullptr ? old : now)->meta.key));
                 }}),
      pods_({.decode = DecodePod,
             .index = PodIndex,
             .on_change =
                 [on_change](const auto* old, const auto* now) {
                   const std::string job = PodIndex((now == nullptr ? old : now)->meta);
                   if (!job.empty()) on_change(job);
                 }}),
      job_reflector_(client,
                     time,
                     jobs_,
                     OptionsFor(TrainingJobType(), {.object_namespace = object_namespace})),
      pod_reflector_(
          client,
          time,
          pods_,
          OptionsFor(PodType(),
                     {.object_namespace = object_namespace,
                      .label_selector = absl::StrCat(kManagedByLabel, "=", kManagedBy)})) {}

JobWatch::~JobWatch() {
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

void JobWatch::Start() {
  threads_.emplace_back([this] {
    pthread_setname_np(pthread_self(), "op-watch-jobs");
    job_reflector_.Run(stop_);
  });
  threads_.emplace_back([this] {
    pthread_setname_np(pthread_self(), "op-watch-pods");
    pod_reflector_.Run(stop_);
  });
}

absl::Status JobWatch::AwaitSynced(pushpull::Deadline deadline) const {
  PUSHPULL_RETURN_IF_ERROR(jobs_.AwaitSynced(deadline));
  return pods_.AwaitSynced(deadline);
}

ReflectorOptions JobWatch::OptionsFor(const ResourceType& type, Selection selection) const {
  return {.type = type,
          .selection = std::move(selection),
          .on_error = [this, plural = type.plural](const absl::Status& status) {
            log_.Warning("watch failed", {{"kind", plural}, {"why", status.message()}});
          }};
}

}  // namespace pushpull_operator
