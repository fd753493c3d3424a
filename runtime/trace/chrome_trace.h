// SPDX-License-Identifier: Apache-2.0
//
// Workers' reports of a trace -> the JSON that Perfetto and chrome://tracing open. Pure.
//
//   worker-0   steps    |--- step 7 -----------------------------------|
//                       |-- compute --|-- synchronize -----------------|
//              program  |- forward -|- backward -|   what the program names (Job::tracing)
//              push           [w[0]]----.                     taken up until sent
//              answer                    \            .->[w[0]]   received until applied
//   server-0   work                       '->[sum][optimize]
//
// One flow of arrows a push: push -> sum -> optimize -> answer. The optimizer's step is one slice,
// in which the flows of all its contributors meet. `sum` is drawn where the server took the push
// up; one that had to wait for another contribution first was added later.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/membership/trace_report.h"

namespace pushpull {

// The text of the file, on one clock (clock_alignment.h) that begins with the first event.
// Format: "Trace Event Format", the events X, M, s, t and f.
std::string ToChromeTrace(absl::string_view job, const std::vector<TraceReport>& reports);

}  // namespace pushpull
