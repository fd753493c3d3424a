// SPDX-License-Identifier: Apache-2.0
//
// The report of a finished run as one self-contained HTML file, for a browser without a network.
// Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// `report`: the text of `pushpull run --report`. Unknown keys, such as those of a later version,
// are passed on. kInvalidArgument: not such a report; the text says which key is missing or has
// another type.
absl::StatusOr<std::string> HtmlReport(absl::string_view report);

}  // namespace pushpull
