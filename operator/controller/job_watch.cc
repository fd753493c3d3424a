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
                   JobWatchOptions options,
                   pushpull::Log log)
    : options_(std::move(options)),
      log_(std::move(log)),
      jobs_(
          {.decode = DecodeTrainingJobObject,
           .on_change =
               [this](const Stored<TrainingJobObject>* old, const Stored<TrainingJobObject>* now) {
                 options_.on_change(ToString((now == nullptr ? old : now)->meta.key));
               }}),
      pods_({.decode = DecodePod,
             .index = PodIndex,
             .on_change =
                 [this](const Stored<Pod>* old, const Stored<Pod>* now) {
                   const std::string job = PodIndex((now == nullptr ? old : now)->meta);
                   if (!job.empty()) options_.on_change(job);
                 }}),
      job_reflector_(client, time, jobs_, OptionsFor(TrainingJobType(), "")),
      pod_reflector_(client,
                     time,
                     pods_,
                     OptionsFor(PodType(), absl::StrCat(kManagedByLabel, "=", kManagedBy))) {}

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

ReflectorOptions JobWatch::OptionsFor(const ResourceType& type,
                                      const std::string& label_selector) const {
  return {.type = type,
          .selection = {.object_namespace = options_.object_namespace,
                        .label_selector = label_selector},
          .on_error = [this, plural = type.plural](const absl::Status& status) {
            log_.Warning("watch failed", {{"kind", plural}, {"why", status.message()}});
          }};
}

}  // namespace pushpull_operator
