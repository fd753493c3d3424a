// SPDX-License-Identifier: Apache-2.0
//
// Turns workers' reports of a trace into the JSON that Perfetto and chrome://tracing open. Pure.
//
//   worker-0   steps    |--- step 7 -----------------------------------|
//                       |-- compute --|-- synchronize -----------------|
//              program  |- forward -|- backward -|   what the program names (Job::tracing)
//              push           [w[0]]----.                     taken up until sent
//              answer                    \            .->[w[0]]   received until applied
//   server-0   work                       '->[sum][optimize]
//
// Each push has one flow of arrows: push -> sum -> optimize -> answer. The optimizer's step is one
// slice, in which the flows of all its contributors meet. `sum` is drawn where the server took up
// the push; a push that first had to wait for another contribution was added later.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/membership/trace_report.h"

namespace pushpull {

// The text of the file, with times on one clock (clock_alignment.h) that begins at the first event.
// Format: "Trace Event Format", the events X, M, s, t and f.
std::string ToChromeTrace(absl::string_view job, const std::vector<TraceReport>& reports);

}  // namespace pushpull
