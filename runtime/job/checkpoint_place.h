// SPDX-License-Identifier: Apache-2.0
//
// Where the checkpoints of a job are: ROOT/NAMESPACE/NAME, where spec.checkpoint names ROOT, so
// jobs that name the same claim, path or URI share nothing. All code gets the folder from here.
// Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "runtime/job/training_job.h"

namespace pushpull {

// The absolute path of the folder that spec.checkpoint names: that of the file:// URI, or one in
// `workdir` for a claim. kInvalidArgument, naming the field: a claim without a `workdir`.
absl::StatusOr<std::string> CheckpointRoot(const CheckpointSpec& checkpoint,
                                           const std::string& workdir);

// metadata.namespace, or "default", as kubectl does, if the manifest names none.
std::string NamespaceOf(const JobMetadata& metadata);

// The folder of the job's own checkpoints in `root`. `metadata` must be valid, so that neither name
// can lead out of `root`.
std::string JobCheckpoints(const std::string& root, const JobMetadata& metadata);

}  // namespace pushpull
