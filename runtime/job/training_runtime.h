// SPDX-License-Identifier: Apache-2.0
//
// A TrainingRuntime: the part of a spec that jobs share. A TrainingJob names one in spec.runtimeRef
// and is merged over it (docs/decisions/0069-runtimes.md). Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/job/problems.h"
#include "runtime/job/tree.h"

namespace pushpull {

// The manifest of the job that runs: `job` with its spec merged over that of a runtime, and without
// spec.runtimeRef. Neither needs to be valid, nor an object.
//
// Objects merge field by field; of lists and scalars the job's replaces the runtime's. A null says
// nothing, as everywhere in a manifest, but inside of a pod template, where it takes a field away.
Tree MergeRuntime(const Tree& runtime_spec, const Tree& job);

// Appends to each problem at a field that only the runtime sets where it comes from: users cannot
// mend it in their job.
void NameRuntime(const std::string& runtime,
                 const Tree& runtime_spec,
                 const Tree& job,
                 std::vector<ManifestProblem>& problems);

}  // namespace pushpull
