// SPDX-License-Identifier: Apache-2.0
//
// What a person sees while a job runs: a line that is redrawn on a terminal, or a line every few
// seconds. Formatting only; who prints it is the launcher.
#pragma once

#include <string>

#include "runtime/membership/job_status.h"

namespace pushpull {

// "step 1200 | loss 0.4312 | 25310 samples/s | sync 1.9 ms | 2 servers | 2 workers"; `before` is an
// earlier status, for the current speed.
std::string FormatProgress(const JobStatus& status, const JobStatus& before);

}  // namespace pushpull
