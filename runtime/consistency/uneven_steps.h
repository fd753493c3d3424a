// SPDX-License-Identifier: Apache-2.0
//
// Finds the steps that are uneven: not all of their chunks have the same contributors, because a
// worker died inside the step (decisions/0022-uneven-steps.md). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/ids.h"
#include "runtime/consistency/sync_step.h"

namespace pushpull {

// Who contributed to a version of a chunk, as a number: equal for the same processes, different for
// others. 0: not known; never the digest of anybody, nor of nobody.
using ContributorsDigest = uint64_t;

// `contributors` in the order of their worker index. Weights are left out: a program may give each
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

  // A chunk has this version. True, once for each step: with it the step that made the version is
  // known to be uneven.
  bool Compare(const CountedVersion& chunk);

 private:
  struct Seen {
    CountedVersion first;  // of the first chunk that was compared
    bool is_uneven = false;
  };
  std::array<Seen, kStepsRemembered> seen_;  // by version
};

}  // namespace pushpull
