// SPDX-License-Identifier: Apache-2.0
//
// Ids are types, never integers: a worker's index cannot be passed where a server's is meant.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"

namespace pushpull {

// An integer that takes part in comparison and hashing and in nothing else.
template <typename Tag, typename Integer>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(Integer value) : value_(value) {}
  constexpr Integer value() const { return value_; }
  friend constexpr bool operator==(Id a, Id b) { return a.value_ == b.value_; }
  friend constexpr auto operator<=>(Id a, Id b) { return a.value_ <=> b.value_; }

  template <typename H>
  friend H AbslHashValue(H state, Id id) {
    return H::combine(std::move(state), id.value_);
  }

 private:
  Integer value_ = 0;
};

using WorkerId = Id<struct WorkerTag, uint32_t>;          // index of the worker, 0-based
using ServerId = Id<struct ServerTag, uint32_t>;          // index of the server, 0-based
using Incarnation = Id<struct IncarnationTag, uint64_t>;  // drawn anew by every start of a process
using TensorId = Id<struct TensorTag, uint32_t>;          // position in the job's tensor table
using ChunkId =
    Id<struct ChunkTag, uint64_t>;  // position in the job's chunk table, stable for ever
using ShardId = Id<struct ShardTag, uint32_t>;  // virtual shard, 0 to 1,023
using Step = Id<struct StepTag, uint64_t>;      // step t turns version t into version t + 1
using Term = Id<struct TermTag, uint64_t>;      // rises with every start of the coordinator

// Orders everything the coordinator ever decided about a shard: a new coordinator's epochs are
// above all earlier ones.
struct Epoch {
  Term term;
  uint64_t counter = 0;
  friend auto operator<=>(const Epoch&, const Epoch&) = default;
};

inline std::string ToString(WorkerId id) {
  return absl::StrCat("worker-", id.value());
}
inline std::string ToString(ServerId id) {
  return absl::StrCat("server-", id.value());
}
inline std::string ToString(Epoch epoch) {
  return absl::StrCat(epoch.term.value(), ".", epoch.counter);
}

}  // namespace pushpull
