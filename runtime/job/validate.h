// SPDX-License-Identifier: Apache-2.0
//
// The rules beyond types and ranges: formats of names, and rules between fields. The CEL rules of
// the CRD are the same. Pure.
#pragma once

#include "runtime/job/problems.h"
#include "runtime/job/training_job.h"
#include "runtime/job/tree.h"

namespace pushpull {

// Adds a problem for each rule that `job` breaks. A rule about a field that already has a problem
// in `problems` is skipped: its value is not as written in the manifest.
void CheckRules(const TrainingJob& job, Problems& problems);

// The same for a job that is not merged with its runtime yet, and for a runtime, both decoded from
// `manifest`. A field that is not set there may be set in the other: no rule uses its default.
void CheckRulesBeforeMerge(const TrainingJob& job, const Tree& manifest, Problems& problems);
void CheckRulesOfRuntime(const TrainingJob& runtime, const Tree& manifest, Problems& problems);

}  // namespace pushpull
