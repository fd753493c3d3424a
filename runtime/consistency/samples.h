// SPDX-License-Identifier: Apache-2.0
//
// How a job's workers share a data set: what is handed out, and each worker's part of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/ids.h"

namespace pushpull {

// A data set that the workers of a job go through together, `epochs` times.
struct SampleSource {
  uint64_t num_samples = 0;  // above 0
  uint64_t epochs = 1;
  uint64_t batch = 1;  // samples a step of each worker; of all together where it is global
  bool is_global_batch = false;
  friend bool operator==(const SampleSource&, const SampleSource&) = default;
};

// Positions first to first + count - 1 of an epoch's order. What order that is, is the program's
// business; every worker must use the same.
struct SampleRange {
  uint64_t first = 0;
  uint64_t count = 0;
  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

// One worker's part of a step.
struct StepSamples {
  Step step;
  uint64_t epoch = 0;               // 0-based
  uint64_t position = 0;            // samples of the epoch that counted in earlier steps
  uint64_t batch = 0;               // samples of a step over all workers, if there are enough
  uint64_t total = 0;               // of this one: fewer at the end of an epoch
  std::vector<SampleRange> ranges;  // this worker's; may be empty, it then pushes with weight 0
  uint64_t count = 0;               // samples in `ranges`
  // The worker takes no further step: every epoch is done, or the job has let this worker go.
  bool is_over = false;
};

}  // namespace pushpull
