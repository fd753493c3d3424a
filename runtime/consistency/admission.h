// SPDX-License-Identifier: Apache-2.0
//
// Backup workers: who counts in a step that does not wait for everybody
// (docs/decisions/0018-the-first-chunk-admits.md). The job's first chunk leads: its step completes
// with the first workers that push to it, and every other chunk waits for exactly these. Pure.
#pragma once

#include <vector>

#include "absl/algorithm/container.h"

#include "runtime/base/ids.h"

namespace pushpull {

// The chunk whose contributors are those of the whole step.
inline constexpr ChunkId kLeadingChunk{0};

// What the leading chunk has decided of one step. It never changes once it is published.
struct Admission {
  Step step;
  std::vector<WorkerId> workers;  // ascending

  bool Has(WorkerId worker) const { return absl::c_binary_search(workers, worker); }
  friend bool operator==(const Admission&, const Admission&) = default;
};

}  // namespace pushpull
