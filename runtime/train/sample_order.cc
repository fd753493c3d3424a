// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/sample_order.h"

#include <numeric>
#include <utility>

namespace pushpull {
namespace {

// SplitMix64's output function: a bijection in which every bit of the input reaches every bit out.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15;
    return Mix(state_);
  }

  // 0 to bound - 1, all equally likely; bound above 0.
  uint32_t Below(uint32_t bound) {
    uint64_t product = (Next() >> 32) * bound;
    // The first (2^32 mod bound) fractions would make some results likelier than others.
    const uint32_t rejected = (0 - bound) % bound;
    while (static_cast<uint32_t>(product) < rejected) product = (Next() >> 32) * bound;
    return static_cast<uint32_t>(product >> 32);
  }

 private:
  uint64_t state_;
};

}  // namespace

std::vector<uint32_t> OrderOfEpoch(const OrderSpec& spec, uint64_t epoch) {
  std::vector<uint32_t> order(spec.num_samples);
  std::iota(order.begin(), order.end(), 0U);
  // Mixed twice: states whose difference is a multiple of the generator's increment share numbers.
  SplitMix64 random(Mix(Mix(spec.seed) + epoch));
  for (uint32_t last = spec.num_samples; last-- > 1;) {
    std::swap(order[last], order[random.Below(last + 1)]);
  }
  return order;
}

}  // namespace pushpull
