// SPDX-License-Identifier: Apache-2.0
//
// A job's status and history as JSON (docs/interfaces.md section 2), for `pushpull status --json`,
// the status page and the report. Keys are added, never lost or renamed.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "runtime/membership/job_status.h"
#include "runtime/status/status_history.h"

namespace pushpull {

// A status has at most this many losses: evenly spaced ones and the newest.
inline constexpr size_t kLossesShown = 512;

nlohmann::json StatusJson(const JobStatus& status);

// Parts of a status that a report also has.
nlohmann::json ResizesJson(const JobStatus& status);
nlohmann::json PhasesJson(const JobStatus& status);  // {NAME: p50 seconds}
// JSON has no NaN and no infinity.
nlohmann::json NumberOrNull(std::optional<double> value);

// {"time":[...],"step":[...],"phases":{NAME:[...]},...}: one list for each field of the points, of
// equal lengths; null if the interval had no value. Only points after `since`.
nlohmann::json PointsJson(const StatusHistory& history, double since = 0);
// [{"time","step","kind","text"}], oldest first.
nlohmann::json EventsJson(const StatusHistory& history);

// JSON as text. Bytes that are not valid UTF-8 are replaced. `indent` below 0: on one line.
std::string Dump(const nlohmann::json& json, int indent);

}  // namespace pushpull
