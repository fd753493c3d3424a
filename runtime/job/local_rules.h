// SPDX-License-Identifier: Apache-2.0
//
// What a manifest means to `pushpull run`, which has processes instead of pods: fields that it
// ignores, rules that it adds to validate.h, and defaults that only a cluster can leave open.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/job/problems.h"
#include "runtime/job/training_job.h"

namespace pushpull {

// How long all members have to become ready if spec.startDeadlineSeconds is not set: nobody watches
// a local job for hours.
inline constexpr std::chrono::seconds kLocalStartDeadline{300};

// One line for each field that is set but applies only on Kubernetes, in the manifest's order:
// "spec.image: is ignored, processes run this machine's programs".
// `num_gpus`: of this machine.
std::vector<std::string> LocallyIgnoredFields(const TrainingJob& job, int num_gpus = 0);

// What keeps a valid manifest from running as local processes; empty if nothing does.
std::vector<ManifestProblem> LocalProblems(const TrainingJob& job, int num_gpus = 0);

}  // namespace pushpull
