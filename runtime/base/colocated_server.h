// SPDX-License-Identifier: Apache-2.0
//
// Servers that stand beside workers, one in the pod of each (spec.workers.colocatedServer). Their
// indices are above all that spec.servers can ask for, so that both may grow and shrink alone.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/base/ids.h"

namespace pushpull {

// spec.servers.maxReplicas is at most this.
constexpr uint32_t kFirstColocatedServer = 1024;

constexpr ServerId ServerBeside(WorkerId worker) {
  return ServerId{kFirstColocatedServer + worker.value()};
}

// The worker that the server stands beside; none for one of spec.servers.
constexpr std::optional<WorkerId> WorkerBeside(ServerId server) {
  if (server.value() < kFirstColocatedServer) return std::nullopt;
  return WorkerId{server.value() - kFirstColocatedServer};
}

}  // namespace pushpull
