// SPDX-License-Identifier: Apache-2.0
//
// The codec of the manifest: a tree to a TrainingJob. Every field, its name, type, range and
// default is stated once, in decode.cc; the schema of the CRD says the same. Rules between fields
// are in validate.h.
#pragma once

#include "runtime/job/problems.h"
#include "runtime/job/training_job.h"
#include "runtime/job/tree.h"

namespace pushpull {

// Adds a problem for each field that is unknown, missing though it must be set, or of the wrong
// type or range; such a field keeps its default. Fields that only the API server writes (status,
// most of metadata) are allowed and ignored.
TrainingJob DecodeTrainingJob(const Tree& tree, Problems& problems);

}  // namespace pushpull
