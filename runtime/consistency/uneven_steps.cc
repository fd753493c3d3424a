// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/uneven_steps.h"

namespace pushpull {
namespace {

// FNV-1a of 64 bits.
constexpr uint64_t kOffsetBasis = 0xcbf29ce484222325;
constexpr uint64_t kPrime = 0x100000001b3;

template <typename Number>
uint64_t Mix(uint64_t hash, Number number) {
  for (size_t i = 0; i < sizeof(number); ++i) hash = (hash ^ ((number >> (8 * i)) & 0xff)) * kPrime;
  return hash;
}

}  // namespace

ContributorsDigest DigestOf(std::span<const Contribution> contributors) {
  uint64_t hash = kOffsetBasis;
  for (const Contribution& contribution : contributors) {
    hash = Mix(hash, contribution.worker.value());
    hash = Mix(hash, contribution.incarnation.value());
  }
  return hash == 0 ? 1 : hash;
}

bool UnevenSteps::Compare(const CountedVersion& chunk) {
  if (chunk.contributors == 0) return false;
  Seen& seen = seen_[chunk.version.value() % kStepsRemembered];
  if (chunk.version < seen.first.version) return false;
  if (seen.first.version < chunk.version || seen.first.contributors == 0) {
    seen = {.first = chunk};
    return false;
  }
  if (seen.is_uneven || seen.first.contributors == chunk.contributors) return false;
  seen.is_uneven = true;
  return true;
}

}  // namespace pushpull
