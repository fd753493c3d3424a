// SPDX-License-Identifier: Apache-2.0
//
// From how many workers, and from which batch size, distributing the computation of a batch pays
// off. One worker needs T_comp for it; k workers need T_comp / k each, and then T_sync(k) until all
// have the sum. It pays off if
//
//   T_comp / k + T_sync(k) < T_comp           one after the other
//   max(T_comp / k, T_sync(k)) < T_comp       where synchronization overlaps computation
//
// Zhang, Lipton, Li, Smola, "Dive into Deep Learning", Computational Performance, Training on
// Multiple GPUs, describes data parallelism as a batch that is cut into k parts.
#pragma once

#include <optional>
#include <string>

#include "runtime/plan/topology.h"

namespace pushpull {

// The result for one way to count: one after the other, or overlapped.
struct BreakEvenPoint {
  double step_seconds = 0;          // with all workers of the topology
  bool pays = false;                // with them
  std::optional<int> from_workers;  // the fewest that beat one worker; none: no number does
  double from_step_seconds = 0;     // with that many
  double from_batch = 0;            // in samples, with all workers; a whole number
};

struct BreakEven {
  double compute_seconds = 0;
  int batch = 0;
  int workers = 0;       // of the topology
  std::string strategy;  // the best one that runs today
  double sync_seconds = 0;
  BreakEvenPoint in_turn;
  BreakEvenPoint overlapped;
};

// Workers are added GPU by GPU in the first machine, then machine by machine. T_sync is the
// streamed time of the best strategy that runs today. `compute_seconds` and `batch` must be above
// 0.
BreakEven FindBreakEven(const Topology& topology, double bytes, double compute_seconds, int batch);

}  // namespace pushpull
