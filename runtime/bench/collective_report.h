// SPDX-License-Identifier: Apache-2.0
//
// The figures of `pushpull bench collective` as text: JSON for programs (docs/interfaces.md section
// 2), a table for people.
#pragma once

#include <string>
#include <vector>

#include "runtime/bench/collective_summary.h"

namespace pushpull {

// Ends with a newline.
std::string ToJson(const CollectiveOptions& options,
                   const std::vector<CollectiveMeasurement>& measured);
std::string ToText(const CollectiveOptions& options,
                   const std::vector<CollectiveMeasurement>& measured);

}  // namespace pushpull
