// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/worker_scaler.h"

#include <chrono>
#include <variant>

#include "absl/strings/str_cat.h"

#include "operator/children/job_objects.h"
#include "operator/controller/object_maker.h"
#include "operator/plan/workers_scale.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {

absl::StatusOr<WorkerScaler::Outcome> WorkerScaler::Scale(const ObservedJob& job, JobState& state) {
  const ObjectKey& key = job.key();
  const bool is_finished = job.object().status.completion_time.has_value();
  if (!job.object().states_size && !is_finished) return WriteSize(job);
  if (!workers_.AwaitSynced(pushpull::Deadline::After(std::chrono::seconds(0))).ok())
    return Outcome();
  const WorkersStore::Pointer shown = workers_.Find(key);
  if (shown != nullptr && shown->meta.controller_uid != job.meta().uid)
    return OwnedByAnother(TrainingJobWorkersType(), key);
  const std::string version = shown == nullptr ? "" : shown->meta.resource_version;
  if (!state.scale.MayWrite(version, job.now)) return Outcome();

  const ScaleStep step = NextScaleStep(key.name,
                                       job.object(),
                                       shown == nullptr ? nullptr : &shown->value,
                                       shown == nullptr ? 0 : shown->meta.generation);
  if (std::holds_alternative<std::monostate>(step)) return Outcome();
  if (const auto* set = std::get_if<SetJobWorkers>(&step))
    return SetJob(job, set->replicas, *shown);
  absl::Status written;
  if (const auto* create = std::get_if<CreateWorkersScale>(&step)) {
    written = client_
                  .Create(TrainingJobWorkersType(),
                          key.object_namespace,
                          WorkersScaleText(job.meta(), create->size),
                          DryRun::kNo,
                          client_.CallDeadline())
                  .status();
    // Created before, but not in the cache yet; another owner's is reported once it is.
    if (absl::IsAlreadyExists(written)) written = absl::OkStatus();
  } else if (const auto* size = std::get_if<SetWorkersSize>(&step)) {
    written = Patch(key, SizePatchText(size->size, version), "");
  } else if (const auto* status = std::get_if<SetScaleStatus>(&step)) {
    written = Patch(key, ScaleStatusPatchText(status->status, version), "status");
  }
  PUSHPULL_RETURN_IF_ERROR(written);
  state.scale.OnWritten(version, job.now);
  return Outcome();
}

absl::StatusOr<WorkerScaler::Outcome> WorkerScaler::WriteSize(const ObservedJob& job) {
  const absl::Status written =
      client_
          .MergePatch(TrainingJobType(),
                      job.key(),
                      ReplicasPatchText(job.object().job.spec, job.meta().resource_version),
                      "",
                      client_.CallDeadline())
          .status();
  // The job is valid, so it is not a number that is refused: somebody's policy rejects this write.
  if (absl::IsInvalidArgument(written)) return absl::PermissionDeniedError(written.message());
  PUSHPULL_RETURN_IF_ERROR(written);
  return Outcome{.has_changed_job = true};
}

// The API server checks the number once more: limits may have changed since, and there are rules
// that the TrainingJobWorkers does not know. A number that it refuses is reverted.
absl::StatusOr<WorkerScaler::Outcome> WorkerScaler::SetJob(
    const ObservedJob& job, int replicas, const Stored<TrainingJobWorkers>& shown) {
  const absl::Status set =
      client_
          .MergePatch(TrainingJobType(),
                      job.key(),
                      WorkerReplicasPatchText(replicas, job.meta().resource_version),
                      "",
                      client_.CallDeadline())
          .status();
  if (set.ok()) return Outcome{.has_changed_job = true};
  if (!absl::IsInvalidArgument(set) && !absl::IsPermissionDenied(set)) return set;
  const WorkersSize size = WorkersSizeOf(job.object().job.spec);
  PUSHPULL_RETURN_IF_ERROR(Patch(job.key(), SizePatchText(size, shown.meta.resource_version), ""));
  return Outcome{.note = absl::StrCat("scaled to ",
                                      replicas,
                                      " workers, which the job cannot have; it stays at ",
                                      size.replicas,
                                      ": ",
                                      set.message())};
}

absl::Status WorkerScaler::Patch(const ObjectKey& key,
                                 const std::string& text,
                                 const std::string& subresource) {
  return client_
      .MergePatch(TrainingJobWorkersType(), key, text, subresource, client_.CallDeadline())
      .status();
}

}  // namespace pushpull_operator
