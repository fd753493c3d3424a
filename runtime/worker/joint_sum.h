// SPDX-License-Identifier: Apache-2.0
//
// The contributions of a group's workers to one chunk's step, and their sum.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "pushpull/tensor_spec.h"

#include "runtime/base/ids.h"
#include "runtime/consistency/sync_step.h"
#include "runtime/consistency/worker_group.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/worker/group_buffers.h"

namespace pushpull {

// What one worker contributes: received into `values`, or in its program's memory. Neither: it has
// no gradient.
struct JointPart {
  Contribution who;
  HostBuffer values = {};
  std::span<const float> own = {};

  size_t num_bytes() const { return own.empty() ? values.num_bytes() : own.size_bytes(); }
};

// A push that counts for several workers.
struct JointPush {
  std::vector<Contribution> contributors;  // by worker index
  // The sum of w_i / unit * g_i, where the g_i are the gradients and the w_i their weights, for the
  // mean; the reduced values otherwise.
  HostBuffer sum;
  bool has_gradient = true;  // false: nobody's counts, and there is no sum
  double unit = 1;
  double learning_rate = 0;  // of the contributor with the lowest index
  bool wants_value = false;  // somebody's answer has the value
  HostBuffer value = {};     // receives it
};

// Thread-compatible.
class JointSum {
 public:
  explicit JointSum(Step step) : step_(step) {}

  Step step() const { return step_; }
  // Replaces what an earlier process of the worker, or an earlier try, has contributed.
  void Add(JointPart part);
  // Every one of `members` has contributed, and nobody else.
  bool IsOf(std::span<const GroupMember* const> members) const;

  // The sum, in worker order, so that it does not depend on the order of arrival. nullptr: it
  // cannot be pushed jointly, because it overflows, nobody has samples, or there is no memory. For
  // the mean and the sum, workers without a gradient contribute zeros.
  // The contributions are used up either way.
  std::shared_ptr<JointPush> Reduce(Reduction reduction, GroupBuffers& buffers);

 private:
  const Step step_;
  std::vector<JointPart> parts_;  // by worker index
};

}  // namespace pushpull
