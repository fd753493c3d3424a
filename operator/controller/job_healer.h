// SPDX-License-Identifier: Apache-2.0
//
// Undoes changes by others to the objects of a running job
// (docs/decisions/0065-what-others-change.md).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "operator/controller/certificate_keeper.h"
#include "operator/controller/child_cache.h"
#include "operator/controller/job_state.h"
#include "operator/controller/object_maker.h"
#include "operator/controller/observed_job.h"
#include "operator/plan/job_plan.h"

namespace pushpull_operator {

// What has been undone, for events.
struct Healed {
  std::map<std::string, std::string> notes = {};  // by kind or pod
  std::optional<WallTime> again_at = {};          // when the next change may be undone
};

// Thread-safe, as long as only one thread at a time uses a JobState; remembers nothing.
class JobHealer {
 public:
  // All must outlive the healer.
  JobHealer(ObjectMaker& maker, CertificateKeeper& keeper, ChildCache& children)
      : maker_(maker), keeper_(keeper), children_(children) {}

  // Heals the objects of which the job has one each, and its own Secret. Blocks on the API server
  // for those that differ. Checks every object; returns the first error, of ObjectMaker or
  // CertificateKeeper.
  absl::Status Heal(const ObservedJob& job, JobState& state, Healed& healed);

  // Sets the labels of a pod again. A pod that is gone is no error.
  absl::Status HealPod(const HealLabels& heal,
                       const ObservedJob& job,
                       JobState& state,
                       Healed& healed);

  // Creates or corrects the object, and remembers that as how it was left. Returns its version.
  absl::StatusOr<std::string> Ensure(const JobObject& object,
                                     const ObservedJob& job,
                                     JobState& state);

 private:
  absl::Status HealObject(const JobObject& object,
                          const ObservedJob& job,
                          JobState& state,
                          Healed& healed);
  absl::Status HealSecret(const ObservedJob& job, JobState& state, Healed& healed);

  ObjectMaker& maker_;
  CertificateKeeper& keeper_;
  ChildCache& children_;
};

}  // namespace pushpull_operator
