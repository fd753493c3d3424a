// SPDX-License-Identifier: Apache-2.0
//
// Which seeds a test of random schedules runs. PUSHPULL_SIM_SEEDS=FIRST:COUNT in the environment
// runs others than the standard ones, one to replay a failure, a million by hand.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace pushpull {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// A simulated job has one thread, and what a sanitizer finds in it needs a path, not a schedule; it
// makes each seed ten times slower. One in twenty still takes minutes.
inline constexpr uint64_t kSeedStride = 20;
#else
inline constexpr uint64_t kSeedStride = 1;
#endif

struct Seeds {
  uint64_t first = 1;
  uint64_t count = 0;

  uint64_t end() const { return first + count; }
};

// 1 to `standard`, or a part of them under a sanitizer.
inline Seeds SeedsToRun(uint64_t standard) {
  Seeds seeds{.first = 1, .count = (standard + kSeedStride - 1) / kSeedStride};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs
  if (const char* wanted = std::getenv("PUSHPULL_SIM_SEEDS")) {
    char* colon = nullptr;
    seeds.first = std::strtoull(wanted, &colon, 10);
    seeds.count = *colon == ':' ? std::strtoull(colon + 1, nullptr, 10) : 1;
  }
  return seeds;
}

}  // namespace pushpull
