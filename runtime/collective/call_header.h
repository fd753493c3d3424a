// SPDX-License-Identifier: Apache-2.0
//
// What a rank sends before the first element of a call to every rank to which it sends elements, so
// that two ranks that make different calls notice. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

#include "runtime/collective/schedule.h"

namespace pushpull {

constexpr size_t kCallHeaderBytes = 64;

struct CallHeader {
  uint64_t sequence = 0;  // of the communicator's calls, from 1
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  uint32_t root = 0;
  uint32_t element_bytes = 0;
  uint64_t elements = 0;
  uint64_t op = 0;  // ReductionOp::fingerprint; 0: nothing is reduced

  friend bool operator==(const CallHeader&, const CallHeader&) = default;
};

// "call 3, all-reduce by ring of 100 elements of 4 bytes".
std::string ToString(const CallHeader& header);

std::array<std::byte, kCallHeaderBytes> EncodeCallHeader(const CallHeader& header);

// Checks that `bytes` are the header of a rank that makes the same call as `own`. kInvalidArgument:
// it makes another call; the text has both. kDataLoss: they are not a header.
absl::Status CheckCallHeader(const CallHeader& own, std::span<const std::byte> bytes);

}  // namespace pushpull
