// SPDX-License-Identifier: Apache-2.0
//
// Bandwidths and times as a topology has them: a number with its unit, so that bits and bytes
// cannot be confused. Also formats bytes, bandwidths and times.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

// "16GB/s" and "16 GB/s" (bytes, also kB, MB, TB), "100Gb/s" (bits, also kb, Mb, Tb), in bytes per
// second. Units are powers of 1,000. None if the text is not such a rate above 0.
std::optional<double> ParseBandwidth(absl::string_view text);

// "1.5us", "20 ns", "1ms", "1s", in seconds; 0 is allowed with a unit. None if it is not a time.
std::optional<double> ParseLatency(absl::string_view text);

std::string FormatBytes(double bytes);      // "160 MB", "22.9 MB"
std::string FormatBandwidth(double bytes);  // "16 GB/s": bytes per second
std::string FormatSeconds(double seconds);  // "15.0 ms", "320 us", "1.28 s"

}  // namespace pushpull
