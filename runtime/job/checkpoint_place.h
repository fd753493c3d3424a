// SPDX-License-Identifier: Apache-2.0
//
// Where the checkpoints of a job are: ROOT/NAMESPACE/NAME, of which spec.checkpoint names ROOT. So
// jobs that name the same claim, path or URI share nothing. All that know the folder know it from
// here. Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "runtime/job/training_job.h"

namespace pushpull {

// The folder that spec.checkpoint names, absolute: that of the file:// URI, or one in `workdir` for
// a claim. kInvalidArgument, naming the field: a claim and no `workdir`.
absl::StatusOr<std::string> CheckpointRoot(const CheckpointSpec& checkpoint,
                                           const std::string& workdir);

// metadata.namespace; "default", as for kubectl, where the manifest names none.
std::string NamespaceOf(const JobMetadata& metadata);

// The folder of the job's own checkpoints in `root`. `metadata` is valid, so that neither name can
// lead out of it.
std::string JobCheckpoints(const std::string& root, const JobMetadata& metadata);

}  // namespace pushpull
