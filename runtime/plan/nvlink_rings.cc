// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/nvlink_rings.h"

#include <algorithm>
#include <cstddef>

namespace pushpull {
namespace {

// Finding a ring is hard in general. Machines with direct links have at most eight GPUs, for which
// a few hundred steps are enough.
constexpr int kSearchStepsMax = 200'000;

using Counts = std::vector<std::vector<int>>;

class RingSearch {
 public:
  RingSearch(const Counts& counts, int width)
      : counts_(counts), width_(width), is_used_(counts.size(), false) {}

  // The order of a ring whose neighbours share at least `width` links; empty: none was found.
  std::vector<int> Find() {
    order_ = {0};
    is_used_[0] = true;
    return Extend() ? order_ : std::vector<int>();
  }

 private:
  int Links(int from, int to) const {
    return counts_[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }

  bool Extend() {
    if (++steps_ > kSearchStepsMax) return false;
    if (order_.size() == counts_.size()) return Links(order_.back(), 0) >= width_;
    const int last = order_.back();
    for (size_t next = 1; next < counts_.size(); ++next) {
      if (is_used_[next] || Links(last, static_cast<int>(next)) < width_) continue;
      is_used_[next] = true;
      order_.push_back(static_cast<int>(next));
      if (Extend()) return true;
      order_.pop_back();
      is_used_[next] = false;
    }
    return false;
  }

  const Counts& counts_;
  const int width_;
  int steps_ = 0;
  std::vector<int> order_;
  std::vector<bool> is_used_;
};

void Take(const Ring& ring, Counts& counts) {
  for (size_t i = 0; i < ring.order.size(); ++i) {
    const auto from = static_cast<size_t>(ring.order[i]);
    const auto to = static_cast<size_t>(ring.order[(i + 1) % ring.order.size()]);
    counts[from][to] -= ring.width;
    if (ring.order.size() > 2) counts[to][from] -= ring.width;
  }
}

}  // namespace

std::vector<Ring> FindNvLinkRings(const Machine& machine) {
  if (!machine.nvlink || machine.nvlink->links_to_switch > 0 || machine.gpus < 2) return {};
  const auto gpus = static_cast<size_t>(machine.gpus);
  Counts counts(gpus, std::vector<int>(gpus, 0));
  int widest = 0;
  for (const NvLinkPair& pair : machine.nvlink->pairs) {
    counts[static_cast<size_t>(pair.first)][static_cast<size_t>(pair.second)] = pair.count;
    counts[static_cast<size_t>(pair.second)][static_cast<size_t>(pair.first)] = pair.count;
    widest = std::max(widest, pair.count);
  }
  std::vector<Ring> rings;
  for (int width = widest; width > 0;) {
    Ring ring{.order = RingSearch(counts, width).Find(), .width = width};
    if (ring.order.empty()) {
      --width;
      continue;
    }
    Take(ring, counts);
    rings.push_back(std::move(ring));
  }
  return rings;
}

}  // namespace pushpull
