// SPDX-License-Identifier: Apache-2.0
//
// `pushpull bench collective`: times collectives between processes of this machine, and checks
// every element.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/bench/collective_summary.h"

namespace pushpull {

// kInvalidArgument names the option that is wrong.
absl::Status Validate(const CollectiveOptions& options);

// Blocks for the whole run, with deadlines. `program` is the path of `pushpull`, which the ranks
// run with `environment`. The options must be valid. When `is_stopped` becomes true, the run soon
// ends with kCancelled. kInternal: a rank has failed; the text has its last line.
absl::StatusOr<std::vector<CollectiveMeasurement>> RunCollectiveBench(
    const CollectiveOptions& options,
    const std::string& program,
    const std::map<std::string, std::string>& environment,
    const std::atomic<bool>& is_stopped);

}  // namespace pushpull
