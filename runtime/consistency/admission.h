// SPDX-License-Identifier: Apache-2.0
//
// Backup workers: which workers count in a step that does not wait for all
// (docs/decisions/0018-the-first-chunk-admits.md). The job's first chunk leads: its step completes
// with the first workers that push to it, and every other chunk waits for exactly those. Pure.
#pragma once

#include <vector>

#include "absl/algorithm/container.h"

#include "runtime/base/ids.h"

namespace pushpull {

// The chunk whose contributors are those of the whole step.
inline constexpr ChunkId kLeadingChunk{0};

// The leading chunk's decision about one step. It never changes once published.
struct Admission {
  Step step;
  std::vector<WorkerId> workers;  // ascending

  bool Has(WorkerId worker) const { return absl::c_binary_search(workers, worker); }
  friend bool operator==(const Admission&, const Admission&) = default;
};

}  // namespace pushpull
