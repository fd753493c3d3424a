// SPDX-License-Identifier: Apache-2.0
//
// By which names the status page of a job is known. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/job/training_job.h"

namespace pushpull {

inline constexpr char kPageHostsVariable[] = "PUSHPULL_PAGE_HOSTS";

// Those of this machine, of the address that the coordinator listens on (host:port), and of the
// job's Service, and `named`, the value of PUSHPULL_PAGE_HOSTS: names separated by commas.
// kInvalidArgument: `named` has something else, which the text names.
absl::StatusOr<std::vector<std::string>> PageHosts(const JobMetadata& job,
                                                   const std::string& machine,
                                                   const std::string& listen,
                                                   const std::string& named);

}  // namespace pushpull
