// SPDX-License-Identifier: Apache-2.0
//
// For tests that start programs: what those are to inherit.
#pragma once

#include <fstream>
#include <map>
#include <string>

namespace pushpull {

// This process's environment, which a sanitizer's options come in.
inline std::map<std::string, std::string> OwnEnvironment() {
  std::map<std::string, std::string> environment;
  std::ifstream file("/proc/self/environ");
  for (std::string variable; std::getline(file, variable, '\0');) {
    const size_t equals = variable.find('=');
    environment[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  return environment;
}

}  // namespace pushpull
