// SPDX-License-Identifier: Apache-2.0
//
// The ids that only the runtime itself uses, in addition to those of its API.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

#include "pushpull/ids.h"

namespace pushpull {

using ServerId = Id<struct ServerTag, uint32_t>;          // index of the server, 0-based
using Incarnation = Id<struct IncarnationTag, uint64_t>;  // drawn at random by each process start
using TensorId = Id<struct TensorTag, uint32_t>;          // position in the job's tensor table
using ChunkId = Id<struct ChunkTag, uint64_t>;  // position in the job's chunk table; never changes
using ShardId = Id<struct ShardTag, uint32_t>;  // virtual shard, 0 to 1,023
using Term = Id<struct TermTag, uint64_t>;      // incremented by every start of the coordinator

// Orders all decisions of the coordinator about a shard: the epochs of a new coordinator are above
// all earlier ones.
struct Epoch {
  Term term;
  uint64_t counter = 0;
  friend auto operator<=>(const Epoch&, const Epoch&) = default;
};

inline std::string ToString(ServerId id) {
  return absl::StrCat("server-", id.value());
}
inline std::string ToString(Epoch epoch) {
  return absl::StrCat(epoch.term.value(), ".", epoch.counter);
}

}  // namespace pushpull
