// SPDX-License-Identifier: Apache-2.0
//
// Servers beside workers, one in each worker's pod (spec.workers.colocatedServer). Their indices
// are above all those that spec.servers can have, so that both can be resized independently.
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

// The worker in whose pod the server runs; none for the servers of spec.servers.
constexpr std::optional<WorkerId> WorkerBeside(ServerId server) {
  if (server.value() < kFirstColocatedServer) return std::nullopt;
  return WorkerId{server.value() - kFirstColocatedServer};
}

}  // namespace pushpull
