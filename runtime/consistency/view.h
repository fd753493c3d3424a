// SPDX-License-Identifier: Apache-2.0
//
// The view: which workers contribute to which steps. A numbered set of members, each for an
// interval of steps, so that one view describes joins, leaves and deaths: a joiner counts from its
// from_step on, a leaver up to its end_step, a dead worker is not a member. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/job/enum_names.h"

namespace pushpull {

// How pushes count. It changes between two views at a step boundary of every worker
// (docs/decisions/0012-modes-change-between-steps.md).
struct Consistency {
  SyncMode mode = SyncMode::kSync;
  uint32_t staleness = 0;  // steps; kBounded only
  // The number of desired workers that a step does not wait for; kSync only
  // (consistency/admission.h).
  uint32_t backup_workers = 0;
  // One decision for all chunks of a step, when each holds all contributions; kSync without backup
  // workers only (consistency/gate.h).
  bool gated = false;
  // The first step of the mode, for every member.
  Step from_step;
  // How far step numbers are ahead of the programs' own, because of earlier mode changes.
  uint64_t steps_skipped = 0;

  // All workers take every step together.
  bool is_sync() const { return mode == SyncMode::kSync || is_ring(); }
  // The workers do so among themselves, without servers.
  bool is_ring() const { return mode == SyncMode::kAllReduce; }
  bool admits() const { return backup_workers > 0; }
  // The leading chunk decides which workers count in a step, and every other chunk waits for that.
  bool is_led() const { return admits() || gated; }
  friend bool operator==(const Consistency&, const Consistency&) = default;
};

// Human-readable: "Bounded, staleness 3", "Sync, backupWorkers 1", "Sync, gated".
std::string Describe(const Consistency& consistency);

struct ViewMember {
  WorkerId worker;
  Incarnation incarnation;
  Step from_step;                // contributes to steps >= from_step
  std::optional<Step> end_step;  // and < end_step, if it has announced its last step
  bool is_released = false;      // leaves early: another process takes over its part
  uint64_t group = 0;            // a push may count for members of one group; 0: of none

  bool ContributesTo(Step step) const {
    return step >= from_step && (!end_step || step < *end_step);
  }
  friend bool operator==(const ViewMember&, const ViewMember&) = default;
};

// Members are in the order of their worker index, each index at most once.
struct View {
  uint64_t number = 0;
  std::vector<ViewMember> members;
  Consistency consistency = {};

  // Null if the worker is not in the view.
  const ViewMember* Find(WorkerId worker) const;
  friend bool operator==(const View&, const View&) = default;
};

}  // namespace pushpull
