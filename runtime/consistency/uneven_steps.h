// SPDX-License-Identifier: Apache-2.0
//
// Finds uneven steps, whose chunks do not all have the same contributors because a worker died
// during the step (docs/decisions/0022-uneven-steps.md). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/ids.h"
#include "runtime/consistency/sync_step.h"

namespace pushpull {

// The contributors to a version of a chunk, as a number: equal for the same processes, different
// for others. 0: unknown; no set of processes has this digest, not even the empty one.
using ContributorsDigest = uint64_t;

// `contributors` in the order of their worker index. Weights are ignored: a program may give each
// tensor its own.
ContributorsDigest DigestOf(std::span<const Contribution> contributors);

// A version of a chunk and the contributors to the step that made it.
struct CountedVersion {
  Step version;
  ContributorsDigest contributors = 0;
};

// Compares the chunks of each step, as their versions become known. Thread-compatible; bounded.
class UnevenSteps {
 public:
  // Steps are compared while they are less than this far behind the newest.
  static constexpr size_t kStepsRemembered = 64;

  // A chunk has reached this version. True, once per step, if this shows that the step that made
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
