// SPDX-License-Identifier: Apache-2.0
//
// One clock for all processes of a trace, from what each worker knows of its servers' clocks. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/membership/trace_report.h"

namespace pushpull {

// Time on the common clock = own time - offset. The common clock is that of the worker with the
// lowest index; a process that no chain of measurements connects to it keeps its own.
struct AlignedClocks {
  std::map<WorkerId, int64_t> workers;
  std::map<ServerId, int64_t> servers;
};

// A worker that measures several servers is placed by the mean of their offsets, which evens out
// the error of each measurement: at most half a round trip (transport/peer_clock.h).
AlignedClocks AlignClocks(const std::vector<TraceReport>& reports);

}  // namespace pushpull
