// SPDX-License-Identifier: Apache-2.0
//
// The rules beyond types and ranges: formats of names, and rules between fields. The CEL rules of
// the CRD are the same. Pure.
#pragma once

#include "runtime/job/problems.h"
#include "runtime/job/training_job.h"

namespace pushpull {

// Adds a problem for each rule that `job` breaks. A rule over a field that already has a problem in
// `problems` is left out: its value is not as written in the manifest.
void CheckRules(const TrainingJob& job, Problems& problems);

}  // namespace pushpull
