// SPDX-License-Identifier: Apache-2.0
//
// Ids are types, not integers: a worker's index cannot be passed where a step is meant.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

// An integer that can be compared and hashed, and nothing else.
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

using WorkerId = Id<struct WorkerTag, uint32_t>;  // index of the worker, 0-based
using Step = Id<struct StepTag, uint64_t>;        // step t turns version t into version t + 1

inline std::string ToString(WorkerId id) {
  return absl::StrCat("worker-", id.value());
}

}  // namespace pushpull
