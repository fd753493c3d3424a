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

// The manifest of the job that runs: `job` with its spec merged over that of a runtime, without
// spec.runtimeRef. Neither needs to be valid, or even an object.
//
// Objects merge field by field; the job's lists and scalars replace the runtime's. A null has no
// effect, as everywhere in a manifest, except inside a pod template, where it removes a field.
Tree MergeRuntime(const Tree& runtime_spec, const Tree& job);

// Appends the runtime's name to each problem at a field that only the runtime sets: users cannot
// fix it in their job.
void NameRuntime(const std::string& runtime,
                 const Tree& runtime_spec,
                 const Tree& job,
                 std::vector<ManifestProblem>& problems);

}  // namespace pushpull
