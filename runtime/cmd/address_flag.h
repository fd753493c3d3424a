// SPDX-License-Identifier: Apache-2.0
//
// Flags that are addresses: the error names the flag, and comes before anything begins.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "runtime/base/host_port.h"

namespace pushpull {

inline std::string WhyNoAddress(const std::string& text) {
  return std::string(ParseHostPort(text, "").status().message());
}

}  // namespace pushpull
