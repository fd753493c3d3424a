// SPDX-License-Identifier: Apache-2.0
//
// Finds uneven steps: their chunks do not all have the same contributors, because a worker died
// inside the step (docs/decisions/0022-uneven-steps.md). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/ids.h"
#include "runtime/consistency/sync_step.h"

namespace pushpull {

// The contributors to a version of a chunk, as a number: equal for the same processes, different
// for others. 0: not known; no set of processes has it, not even the empty one.
using ContributorsDigest = uint64_t;

// `contributors` in the order of their worker index. Weights are ignored: a program may give each
// tensor its own.
ContributorsDigest DigestOf(std::span<const Contribution> contributors);

// A version of a chunk and who contributed to the step that made it.
struct CountedVersion {
  Step version;
  ContributorsDigest contributors = 0;
};

// Compares the chunks of each step, as their versions become known. Thread-compatible; bounded.
class UnevenSteps {
 public:
  // Steps are compared as long as they are less than this behind the newest.
  static constexpr size_t kStepsRemembered = 64;

  // A chunk has reached this version. True, once for each step: this shows that the step that made
  // the version was uneven.
  bool Compare(const CountedVersion& chunk);

 private:
  struct Seen {
    CountedVersion first;  // of the first chunk that was compared
    bool is_uneven = false;
  };
  std::array<Seen, kStepsRemembered> seen_;  // by version
};

}  // namespace pushpull
