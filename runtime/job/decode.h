// SPDX-License-Identifier: Apache-2.0
//
// The codec of the manifest: from a tree to a TrainingJob. Every field's name, type, range and
// default is stated once, in decode.cc and training_job.h; the schemas of the CRDs say the same.
// Rules between fields are in validate.h.
#pragma once

#include "runtime/job/problems.h"
#include "runtime/job/training_job.h"
#include "runtime/job/tree.h"

namespace pushpull {

// Adds a problem for each field that is unknown, required but missing, or of the wrong type or
// range; such a field keeps its default. Fields that only the API server writes (status, most of
// metadata) are allowed and ignored.
TrainingJob DecodeTrainingJob(const Tree& tree, Problems& problems);

// The same for a TrainingRuntime, read as the job that it would be on its own. Fields that concern
// a single job, such as spec.suspend, are problems.
TrainingJob DecodeTrainingRuntime(const Tree& tree, Problems& problems);

}  // namespace pushpull
