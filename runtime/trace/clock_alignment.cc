// SPDX-License-Identifier: Apache-2.0
#include "runtime/trace/clock_alignment.h"

namespace pushpull {
namespace {

using Offsets = std::map<WorkerId, std::map<ServerId, int64_t>>;

// Sets the worker's offset from the servers that have one; false: none has.
bool PlaceWorker(WorkerId worker,
                 const std::map<ServerId, int64_t>& measured,
                 AlignedClocks& clocks) {
  int64_t base = 0;
  int64_t sum = 0;  // of differences from the first: offsets themselves may be years
  int64_t count = 0;
  for (const auto& [server, offset] : measured) {
    const auto known = clocks.servers.find(server);
    if (known == clocks.servers.end()) continue;
    const int64_t own = known->second - offset;
    if (count++ == 0) base = own;
    sum += own - base;
  }
  if (count == 0) return false;
  clocks.workers[worker] = base + sum / count;
  return true;
}

void PlaceServers(int64_t worker,
                  const std::map<ServerId, int64_t>& measured,
                  AlignedClocks& clocks) {
  for (const auto& [server, offset] : measured) clocks.servers.emplace(server, worker + offset);
}

}  // namespace

AlignedClocks AlignClocks(const std::vector<TraceReport>& reports) {
  Offsets measured;
  for (const TraceReport& report : reports) {
    for (const TracedClock& clock : report.clocks)
      measured[report.worker][clock.server] = clock.offset_ns;
  }
  AlignedClocks clocks;
  // Each round places the workers that measure a server already placed. A worker that no round
  // places begins a group of its own.
  while (!measured.empty()) {
    const size_t before = measured.size();
    std::erase_if(measured, [&](const auto& entry) {
      if (!PlaceWorker(entry.first, entry.second, clocks)) return false;
      PlaceServers(clocks.workers.at(entry.first), entry.second, clocks);
      return true;
    });
    if (measured.size() < before) continue;
    const auto first = measured.begin();
    clocks.workers[first->first] = 0;
    PlaceServers(0, first->second, clocks);
    measured.erase(first);
  }
  return clocks;
}

}  // namespace pushpull
