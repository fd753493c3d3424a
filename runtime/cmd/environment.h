// SPDX-License-Identifier: Apache-2.0
//
// The program's environment as a value, taken when a command begins.
#pragma once

#include <map>
#include <string>

namespace pushpull {

std::map<std::string, std::string> Environment();

}  // namespace pushpull
