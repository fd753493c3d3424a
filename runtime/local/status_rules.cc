// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/status_rules.h"

#include <algorithm>

namespace pushpull {

bool IsDesired(const JobStatus& status, JobRole role, uint32_t index) {
  const uint32_t desired =
      role == JobRole::kWorker ? status.desired_workers : status.desired_servers;
  return desired == 0 || index < desired;
}

bool WasReleased(const JobStatus& status, uint32_t worker) {
  return std::any_of(status.workers.begin(), status.workers.end(), [&](const WorkerStatus& it) {
    return it.worker.value() == worker && it.was_released && !it.is_alive;
  });
}

bool IsListed(const JobStatus& status, const Endpoint& server) {
  return std::any_of(status.servers.begin(), status.servers.end(), [&](const ServerStatus& it) {
    return it.is_alive && it.server.value() == server.index &&
           static_cast<int64_t>(it.pid) == server.pid;
  });
}

bool IsAwaited(const JobStatus& status, uint32_t server) {
  const auto is_it = [&](ServerId id) { return id.value() == server; };
  return std::any_of(
      status.state_losses.begin(), status.state_losses.end(), [&](const StateLoss& loss) {
        return loss.is_waiting && std::any_of(loss.servers.begin(), loss.servers.end(), is_it);
      });
}

bool HasLastStatistics(const JobStatus& status) {
  return std::all_of(status.servers.begin(), status.servers.end(), [&](const ServerStatus& server) {
    return server.stats.chunks == 0 || server.stats.highest_version >= status.step;
  });
}

bool IsSaved(const JobStatus& status) {
  return status.checkpoint.finished == status.checkpoint.requested;
}

}  // namespace pushpull
