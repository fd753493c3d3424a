// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"

#include "operator/plan/parts.h"
#include "operator/plan/plan.h"

namespace pushpull_operator {

bool NeedsRuntime(const Observation& seen) {
  const TrainingJobObject& object = seen.object;
  if (object.runtime.empty() || !object.unreadable.empty()) return false;
  if (!HasRuntime(object)) return true;
  // As long as nothing has run with it, the runtime may be changed to correct the job's problems.
  const bool has_changed = seen.runtime && seen.runtime->record != *object.status.runtime;
  return has_changed && !object.problems.empty() && !object.status.start_time;
}

void PlanRuntime(Draft& draft) {
  const Observation& seen = draft.seen();
  const std::string& name = seen.object.runtime;
  if (!draft.status().phase) draft.SetPhase(Phase::kPending);
  DescribePods(draft);
  if (!seen.runtime) {
    return draft.Set("Reconciled",
                     false,
                     "RuntimeNotFound",
                     absl::StrCat("spec.runtimeRef.name: there is no TrainingRuntime ",
                                  name,
                                  " in the namespace ",
                                  seen.meta.key.object_namespace,
                                  "; the job waits for it"));
  }
  if (!seen.runtime->problem.empty()) {
    draft.RequeueAt(draft.now() + kRuntimeRetry);
    return draft.Set(
        "Reconciled",
        false,
        "InvalidSpec",
        absl::StrCat(
            "spec.runtimeRef.name: the TrainingRuntime ", name, " ", seen.runtime->problem));
  }
  draft.status().runtime = seen.runtime->record;
}

}  // namespace pushpull_operator
