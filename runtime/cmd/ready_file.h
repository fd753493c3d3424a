// SPDX-License-Identifier: Apache-2.0
//
// How a role tells the launcher that it listens, and where.
#pragma once

#include <string>

namespace pushpull {

struct RoleAddresses {
  std::string control;  // host:port; empty where the role has none
  std::string data;
  std::string metrics;
};

// Writes one line of JSON to `fd`, {"control":...,"data":...,"metrics":...}, and closes it. A
// negative fd means that nobody waits. The launcher being gone is no error: its guardian ends this
// process.
void ReportReady(int fd, const RoleAddresses& addresses);

}  // namespace pushpull
