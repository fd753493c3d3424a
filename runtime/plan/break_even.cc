// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/break_even.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/plan/planner.h"
#include "runtime/plan/strategy.h"

namespace pushpull {
namespace {

double InTurn(double compute, int workers, double sync) {
  return compute / workers + sync;
}
double Overlapped(double compute, int workers, double sync) {
  return std::max(compute / workers, sync);
}

void Note(int workers, double step, double compute, BreakEvenPoint& point) {
  point.step_seconds = step;
  point.pays = step < compute;
  if (!point.pays || point.from_workers) return;
  point.from_workers = workers;
  point.from_step_seconds = step;
}

// The next whole number above `batch`.
double NextBatch(double batch) {
  return std::floor(batch) + 1;
}

}  // namespace

BreakEven FindBreakEven(const Topology& topology, double bytes, double compute_seconds, int batch) {
  BreakEven result{
      .compute_seconds = compute_seconds, .batch = batch, .workers = NumWorkers(topology)};
  const int in_machine = std::max(topology.machine.gpus, 1);
  const Planner whole(topology.machine, bytes);
  for (int workers = std::min(2, in_machine); workers <= result.workers;
       workers += workers < in_machine ? 1 : in_machine) {
    if (workers < 2) continue;
    const Topology part = PartWith(topology, workers);
    // With all GPUs of a machine the links are those of the whole: no need to search for rings
    // again.
    const std::vector<Strategy> strategies =
        workers < in_machine ? Planner(part.machine, bytes).Strategies(part)
                             : whole.Strategies(workers == result.workers ? topology : part);
    const Strategy* best = Planner::BestOfToday(strategies);
    if (best == nullptr) continue;
    result.strategy = best->schedule.name;
    const double sync = result.sync_seconds = best->streamed_seconds;
    Note(workers, InTurn(compute_seconds, workers, sync), compute_seconds, result.in_turn);
    Note(workers, Overlapped(compute_seconds, workers, sync), compute_seconds, result.overlapped);
  }
  // Computation time grows with the batch, synchronization time does not.
  const double sample_seconds = compute_seconds / batch;
  const double saved = sample_seconds * (1 - 1.0 / result.workers);
  result.in_turn.from_batch = NextBatch(result.sync_seconds / saved);
  result.overlapped.from_batch = NextBatch(result.sync_seconds / sample_seconds);
  return result;
}

}  // namespace pushpull
