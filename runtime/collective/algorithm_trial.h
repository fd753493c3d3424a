// SPDX-License-Identifier: Apache-2.0
//
// Finds the fastest algorithm for calls of one collective and size by trying them in turn in the
// first calls that a program makes anyway: with its arrays, at its moments, for no traffic of its
// own. Pure.
//
//   one round to warm up, then three   all candidates             none far behind stays
//   six rounds or more                 those that are left        those near the fastest stay
//   sixteen rounds or more             these                      the fastest is chosen
//
// In a round every candidate makes one call, so that a disturbance of the machine affects all of
// them. Medians count. Times of short calls vary more, so their stages have up to eight times as
// many rounds.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/collective/schedule.h"

namespace pushpull {

// All ranks have the same trial, and make the same calls. Thread-compatible.
class AlgorithmTrial {
 public:
  // At least one candidate.
  explicit AlgorithmTrial(std::vector<Algorithm> candidates);

  bool is_over() const { return candidates_.size() == 1; }
  // Of the next call: the next one to try, or the fastest once the trial is over.
  Algorithm next() const { return candidates_[num_calls_ % candidates_.size()]; }

  // The call by next() took so long on this rank.
  void Add(double seconds);
  // Not empty: all rounds of a stage are done. The caller reduces these times over all ranks, each
  // to the slowest rank's, and calls Conclude.
  std::span<double> due();
  void Conclude();

  struct Result {
    Algorithm algorithm = Algorithm::kRing;
    double seconds = 0;  // of a call
  };
  // From the latest conclusion: those that took part in it, the fastest first.
  const std::vector<Result>& results() const { return results_; }

 private:
  std::vector<Algorithm> candidates_;
  size_t stage_ = 0;
  size_t num_rounds_;            // of this stage, without those that warm up
  size_t num_calls_ = 0;         // of this stage, those that warm up included
  std::vector<double> seconds_;  // of this stage's calls, by round and candidate
  std::vector<Result> results_;
};

}  // namespace pushpull
