// SPDX-License-Identifier: Apache-2.0
//
// The training loop of one worker: data-parallel, each step over the batch of all workers. main.cc
// handles flags, environment and files.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"
#include "pushpull/job.h"

#include "runtime/train/fashion_mnist.h"
#include "runtime/train/model.h"

namespace pushpull {

struct TrainingSettings {
  ModelKind model = ModelKind::kMlp;
  uint64_t epochs = 3;
  std::optional<uint64_t> steps_max;  // ends the training earlier, even within an epoch
  uint64_t batch = 64;                // samples per step and worker
  uint64_t seed = 1;                  // of the initial values and of the samples' order

  OptimizerSpec optimizer;      // its learning rate is tuned for steps of base_batch samples
  Codec codec = Codec::kNone;   // of gradients on the wire
  uint64_t base_batch = 64;     // samples per step over all workers
  double warmup_epochs = 0;     // over which the learning rate rises to its scaled value
  bool anneals = true;          // the learning rate falls linearly to 0 at the last step
  uint64_t evaluate_every = 1;  // epochs between evaluations; 0: only at the end
  Duration start_timeout = std::chrono::seconds(300);  // for registering
  Duration step_timeout = std::chrono::seconds(60);    // for the job's share of a step

  // For tests: this worker's gradients in that step contain a NaN.
  std::optional<Step> poisoned_step;
};

// kInvalidArgument names the field.
absl::Status Validate(const TrainingSettings& settings);

// Sets how many threads LibTorch and the linear algebra below it may use, above 0. Call it before
// the first tensor operation. The number of threads determines the order of sums, so runs with
// different numbers differ in their bits.
void SetComputeThreads(int threads);

// Trains from the job's start_step to the end, or until this worker is released, reports losses and
// results to the job, and leaves it. Returns the process's exit code. Worker 0 evaluates on `test`
// and writes a line for each evaluation to `lines`, then the final accuracy. Blocks for the whole
// training; each wait is bounded by the timeouts.
//
// In a deterministic job the same settings, workers and data give the same bits in every run.
// Errors are those of the job, which has then ended. `settings` must have passed Validate; neither
// set may be empty.
absl::StatusOr<int> Train(std::unique_ptr<Job> job,
                          const ImageSet& training,
                          const ImageSet& test,
                          const TrainingSettings& settings,
                          std::FILE* lines);

}  // namespace pushpull
