// SPDX-License-Identifier: Apache-2.0
//
// The faults of each frame on a bad network, drawn from a seed. Pure: the same seed and options
// give the same faults.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "pushpull/deadline.h"

namespace pushpull {

// Probabilities are for each frame, from 0 to 1.
struct InprocFaults {
  Duration delay_min{0};  // of every frame, drawn uniformly
  Duration delay_max{0};
  double loss = 0;
  double duplication = 0;  // it arrives twice
  double reordering = 0;   // it is held back so that later ones overtake it
  Duration reordering_delay_max = std::chrono::milliseconds(5);

  // Every frame arrives exactly once and in order.
  bool is_reliable() const { return loss == 0 && duplication == 0 && reordering == 0; }
};

// One arrival of a frame.
struct Arrival {
  Duration delay{0};
  bool is_held_back = false;  // it does not make later frames wait
};

// Thread-compatible.
class FaultStream {
 public:
  explicit FaultStream(uint64_t seed) : random_(seed) {}

  // The arrivals of the next frame: none, one or two.
  std::vector<Arrival> Next(const InprocFaults& faults);

 private:
  double Draw();  // from [0, 1)
  Arrival DrawArrival(const InprocFaults& faults);

  // The standard fixes its numbers, unlike those of its distributions.
  std::mt19937_64 random_;
};

}  // namespace pushpull
