// SPDX-License-Identifier: Apache-2.0
//
// A rank of a benchmark of collectives, and its protocol with the benchmark.
//
//   benchmark                     rank
//             <-- RankPort ------ listens for the other ranks
//   RankPlan  ----------------->  connects to all others
//             <-- RankDone -----
//   kRun      ----------------->  makes and checks the call `repeats` times, each after a barrier;
//                                 with Algorithm::kAuto, once its trial is over
//             <-- int64 x repeats, RankDone
//   kLeave    ----------------->  ends
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "runtime/collective/rank_mesh.h"
#include "runtime/collective/schedule.h"

namespace pushpull {

struct RankPort {
  uint32_t rank;
  uint32_t port;
};

// An IPv4 address as text.
using RankAddress = std::array<char, 16>;

struct RankPlan {
  GroupToken group;
  uint32_t ranks;
  LinkChannel channel;
  std::array<uint8_t, 3> unused;
  uint64_t shared_bytes;  // of an array that others read in place; 0: arrays are private
  std::array<uint16_t, kRanksMax> ports;
  std::array<RankAddress, kRanksMax> addresses;  // zero-terminated
};

enum class RankOrderKind : uint32_t { kRun = 1, kLeave = 2 };
struct RankOrder {
  RankOrderKind kind;
  uint32_t repeats;
  uint64_t bytes;
  Collective collective;
  Algorithm algorithm;
  std::array<uint8_t, 6> unused;
};

struct RankDone {
  uint64_t bytes_sent;  // in one call
  uint32_t is_right;
  Algorithm used;  // never kAuto
  std::array<uint8_t, 3> unused;
};

// Blocks until the benchmark releases it. `control` is the path of the benchmark's socket; others
// reach this rank at `address`. The benchmark prints the error of a failed call.
absl::Status RunCollectiveRank(const std::string& control,
                               uint32_t rank,
                               const std::string& address);

}  // namespace pushpull
