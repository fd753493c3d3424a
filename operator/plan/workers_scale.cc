// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/workers_scale.h"

#include <algorithm>

#include "operator/api/member.h"

namespace pushpull_operator {

WorkersSize WorkersSizeOf(const pushpull::TrainingJobSpec& spec) {
  const bool has_backups = spec.sync.mode == pushpull::SyncMode::kSync;
  const int fewest = has_backups ? spec.sync.backup_workers + 1 : 1;
  return {.replicas = spec.workers.replicas,
          .min_replicas = std::max(spec.workers.min_replicas, fewest),
          .max_replicas = spec.workers.max_replicas};
}

ScaleStep NextScaleStep(const std::string& name,
                        const TrainingJobObject& job,
                        const TrainingJobWorkers* workers,
                        int64_t generation) {
  const WorkersSize size = WorkersSizeOf(job.job.spec);
  const bool has_finished = job.status.completion_time.has_value();
  if (workers == nullptr) {
    if (has_finished) return std::monostate();
    return CreateWorkersScale{size};
  }
  // It is created with the job's number. If it was changed before its first status, it was scaled.
  const int agreed = workers->status.agreed_replicas.value_or(
      generation > 1 ? size.replicas : workers->size.replicas);
  const bool was_scaled = size.replicas == agreed && workers->size.replicas != agreed;
  if (was_scaled && !has_finished) return SetJobWorkers{workers->size.replicas};
  if (workers->size != size) return SetWorkersSize{size};
  const WorkersScaleStatus status{.replicas = static_cast<int>(job.status.workers.replicas),
                                  .selector = SelectorOf(name, pushpull::JobRole::kWorker),
                                  .agreed_replicas = size.replicas,
                                  .is_finished = has_finished};
  if (workers->status != status) return SetScaleStatus{status};
  return std::monostate();
}

}  // namespace pushpull_operator
