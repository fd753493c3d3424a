// SPDX-License-Identifier: Apache-2.0
//
// The rules that a type and a range cannot say: how names must look and how fields go together. The
// CEL rules of the CRD say the same. Pure.
#pragma once

#include "runtime/job/problems.h"
#include "runtime/job/training_job.h"

namespace pushpull {

// Adds a problem for each rule that `job` breaks. A rule over a field that already has a problem in
// `problems` is left out: the value it would judge is not the one that was written.
void CheckRules(const TrainingJob& job, Problems& problems);

}  // namespace pushpull
