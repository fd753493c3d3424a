// SPDX-License-Identifier: Apache-2.0
//
// Which algorithms suit a call, before anything is measured. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/collective/schedule.h"

namespace pushpull {

// Up to this many bytes what counts is how many sends follow one another, not how much they send.
constexpr uint64_t kFewSendsBytesMax = 64 << 10;

// A guess: host for the smallest arrays of up to 4 ranks, halving-doubling or a tree up to
// kFewSendsBytesMax, ring above.
Algorithm GuessFor(int ranks, uint64_t num_bytes);

// Those that are worth measuring: all up to kFewSendsBytesMax; above, those in which no rank sends
// much more than in the best of them.
std::vector<Algorithm> CandidatesFor(Collective collective, int ranks, uint64_t num_bytes);

}  // namespace pushpull
