// SPDX-License-Identifier: Apache-2.0
//
// One message of every kind with no field at its default, for the tests of the wire form.
#pragma once

#include <vector>

#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// One of each alternative of FromMember, and Heartbeat with each of its statistics.
std::vector<FromMember> SampleFromMember();

// One of each alternative of ToMember.
std::vector<ToMember> SampleToMember();

JobStatus SampleJobStatus();

}  // namespace pushpull
