// SPDX-License-Identifier: Apache-2.0
//
// State that a worker's program keeps beside the job's tensors, such as that of an optimizer which
// it runs itself (docs/decisions/0096-state-of-programs.md). It is in checkpoints if the program
//
//   - registers tensors for it with the optimizer Sum and the reduction max, and calls Use;
//   - pushes them in every step, after the other tensors, without a gradient unless TakeSave says
//     that the state is needed: then with it, the same in all workers.
//
// A job that begins from a checkpoint receives the tensors with it.
#pragma once

#include "absl/status/status.h"

namespace pushpull {

// Belongs to one Job. Thread-safe; nothing blocks.
class ProgramState {
 public:
  virtual ~ProgramState() = default;

  // From now on checkpoints wait for TakeSave. Before Register.
  virtual void Use() = 0;
  // Valid after Register.
  //
  //   kFailedPrecondition  only mode Sync, without backup workers and gated steps, has checkpoints
  //                        with such state. Names the job's mode.
  virtual absl::Status Check() const = 0;
  // Whether a step is complete, and its values arrive, only when the program has pushed all its
  // tensors: with gated steps and backup workers, and in mode AllReduce. Valid after Register.
  virtual bool has_whole_steps() const = 0;
  // Whether others had made steps when this worker began, so that it needs their state; false for
  // those with whom the job begins, or begins again. Valid after Register.
  virtual bool has_joined_others() const = 0;
  // Whether the state after the step under way must be pushed: a checkpoint will be made of it, or
  // this worker must leave. Once per step, when the other tensors are pushed. `is_last`: the
  // program pushes it in any case, because it is about to leave.
  virtual bool TakeSave(bool is_last) = 0;
};

}  // namespace pushpull
