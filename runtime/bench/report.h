// SPDX-License-Identifier: Apache-2.0
//
// A benchmark's figures as text: JSON for programs (docs/interfaces.md section 2), lines for
// people.
#pragma once

#include <string>

#include "runtime/bench/sync_summary.h"

namespace pushpull {

// Ends with a newline.
std::string ToJson(const SyncOptions& options, const SyncSummary& summary, bool is_verified);
std::string ToText(const SyncOptions& options, const SyncSummary& summary, bool is_verified);

}  // namespace pushpull
