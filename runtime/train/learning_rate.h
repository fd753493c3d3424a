// SPDX-License-Identifier: Apache-2.0
//
// The learning rate of each step: scaled with the batch, warmed up from the start. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "runtime/base/ids.h"

namespace pushpull {

struct LearningRateSettings {
  double base_learning_rate = 0;  // tuned for base_batch, above 0
  uint64_t base_batch = 0;        // the samples per step that it was tuned for, above 0
  uint64_t warmup_steps = 0;      // 0: none
  uint64_t anneal_steps = 0;      // 0: none; else the step at which the rate would reach 0
};

// kInvalidArgument names the field. Precondition of LearningRateAt.
absl::Status Validate(const LearningRateSettings& settings);

// The learning rate of `step` when all workers together use `global_batch` samples per step.
//
// With k = global_batch / base_batch: k times the base rate, so that twice the workers take steps
// twice as large. If k is above 1, the rate rises linearly from the base rate during the first
// warmup_steps steps, by the same amount each, and step warmup_steps is the first at the full rate.
// With anneal_steps the result falls linearly from there to 0 at step anneal_steps, the last step
// of training excluded.
//
// The ratio of rate to batch, which sets the noise of the updates (Smith, Kindermans, Ying, Le,
// ICLR 2018, arXiv:1711.00489, section 3), depends on the base only. So there are two equivalent
// ways to anneal by a factor f: divide base_learning_rate by f, or multiply base_batch and
// global_batch by f.
//
// Source: Goyal et al., 2017, arXiv:1706.02677, sections 2.1 (linear scaling) and 2.2 (gradual
// warm-up).
double LearningRateAt(const LearningRateSettings& settings, uint64_t global_batch, Step step);

}  // namespace pushpull
