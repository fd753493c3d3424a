// SPDX-License-Identifier: Apache-2.0
//
// The order of the samples in an epoch. Job::Samples assigns parts of it to workers. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace pushpull {

struct OrderSpec {
  uint32_t num_samples = 0;  // of the data set
  uint64_t seed = 0;
};

// [num_samples] the numbers 0 to num_samples - 1 in the order of `epoch`: a permutation drawn from
// seed and epoch, all equally likely. Never changes, on any machine: a resumed job relies on it.
//
// Source: Knuth, The Art of Computer Programming, volume 2, section 3.4.2, algorithm P, with the
// generator SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) and unbiased bounds (Lemire, 2019,
// arXiv:1805.10941, algorithm 5 on 32 bits).
std::vector<uint32_t> OrderOfEpoch(const OrderSpec& spec, uint64_t epoch);

}  // namespace pushpull
