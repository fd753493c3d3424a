// SPDX-License-Identifier: Apache-2.0
//
// How the workers of a job share a data set: the source, and each worker's part of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "pushpull/ids.h"

namespace pushpull {

// A data set that the workers of a job divide among themselves, `epochs` times. A job that is
// resumed goes on until it has had as many epochs as its program now says, and takes a data set of
// another size from the next epoch on.
struct SampleSource {
  uint64_t num_samples = 0;  // above 0
  uint64_t epochs = 1;
  uint64_t batch = 1;  // samples per step: of each worker, or of all workers (is_global_batch)
  bool is_global_batch = false;
  bool drops_last = false;  // an epoch ends before a step that would not be full
  friend bool operator==(const SampleSource&, const SampleSource&) = default;
};

// Positions [first, first + count) in an epoch's order of the samples. The program chooses the
// order; all workers must use the same one.
struct SampleRange {
  uint64_t first = 0;
  uint64_t count = 0;
  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

// One worker's part of a step. In modes Async and Bounded a step is one worker's.
struct StepSamples {
  Step step;
  uint64_t epoch = 0;     // 0-based
  uint64_t position = 0;  // samples of the epoch that earlier steps have consumed
  uint64_t batch = 0;     // samples of a full step, over all workers
  uint64_t total = 0;     // samples of this step, over all workers; fewer at an epoch's end
  std::vector<SampleRange> ranges;  // this worker's part; if empty, it pushes with weight 0
  uint64_t count = 0;  // samples in `ranges`; none or at least 2 if a full step has 2 per worker
  // The workers among whom the step is divided, ascending; in Async and Bounded those that have
  // samples of the epoch, or wait for some.
  std::vector<WorkerId> members;
  // False, in mode Async without samples: there is no step to make. Push nothing, and wait for
  // CommitSamples, which is done when there are samples for this worker or the epochs are over.
  bool has_step = true;
  // The worker takes no further step: all epochs are done, or the worker is released.
  bool is_over = false;
};

}  // namespace pushpull
