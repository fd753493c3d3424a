// SPDX-License-Identifier: Apache-2.0
//
// An environment as a value: only a program's main reads the real one.
#pragma once

#include <map>
#include <string>

namespace pushpull {

// The value of a variable; empty if it is not set.
inline std::string VariableOf(const std::map<std::string, std::string>& environment,
                              const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

}  // namespace pushpull
