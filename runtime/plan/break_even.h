// SPDX-License-Identifier: Apache-2.0
//
// From how many workers on, and from which batch on, it pays to distribute the computing of a
// batch. One worker needs T_comp for it, k workers T_comp / k each, and then T_sync(k) until all
// have the sum: it pays if
//
//   T_comp / k + T_sync(k) < T_comp           one after the other
//   max(T_comp / k, T_sync(k)) < T_comp       where synchronizing hides behind computing
//
// Zhang, Lipton, Li, Smola, "Dive into Deep Learning", Computational Performance, Training on
// Multiple GPUs, has data parallelism as a batch that is cut into k parts.
#pragma once

#include <optional>
#include <string>

#include "runtime/plan/topology.h"

namespace pushpull {

// One way to count: one after the other, or overlapped.
struct BreakEvenPoint {
  double step_seconds = 0;          // with all workers of the topology
  bool pays = false;                // with them
  std::optional<int> from_workers;  // the fewest that are faster than one; none: no number is
  double from_step_seconds = 0;     // with so many
  double from_batch = 0;            // with all workers; samples, a whole number
};

struct BreakEven {
  double compute_seconds = 0;
  int batch = 0;
  int workers = 0;       // of the topology
  std::string strategy;  // the best one of today
  double sync_seconds = 0;
  BreakEvenPoint in_turn;
  BreakEvenPoint overlapped;
};

// Workers are added GPU by GPU in the first machine, then machine by machine. T_sync is the
// streamed time of the best strategy that runs today. `compute_seconds` and `batch` are above 0.
BreakEven FindBreakEven(const Topology& topology, double bytes, double compute_seconds, int batch);

}  // namespace pushpull
