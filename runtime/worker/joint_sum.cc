// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/joint_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/store/step_accumulator.h"

namespace pushpull {
namespace {

// False: no memory.
bool AddTo(StepAccumulator& sum, JointPart& part, GroupBuffers& buffers) {
  const double weight = part.who.weight;
  if (part.num_bytes() == 0) {
    sum.AddNothing(weight);
    return true;
  }
  if (!part.own.empty() && sum.has_sum()) {
    sum.AddTo(part.own, weight);
    return true;
  }
  if (!part.own.empty()) {
    absl::StatusOr<HostBuffer> copy = buffers.Take(part.own.size_bytes());
    if (!copy.ok()) return false;
    std::memcpy(copy->bytes().data(), part.own.data(), part.own.size_bytes());
    part.values = *std::move(copy);
  }
  sum.Add(part.values, weight);
  part.values = {};
  return true;
}

}  // namespace

void JointSum::Add(JointPart part) {
  const auto place = std::ranges::lower_bound(
      parts_, part.who.worker, {}, [](const JointPart& known) { return known.who.worker; });
  if (place != parts_.end() && place->who.worker == part.who.worker) {
    *place = std::move(part);
  } else {
    parts_.insert(place, std::move(part));
  }
}

bool JointSum::IsOf(std::span<const GroupMember* const> members) const {
  return std::ranges::equal(parts_, members, [](const JointPart& part, const GroupMember* member) {
    return part.who.worker == member->worker && part.who.incarnation == member->incarnation;
  });
}

std::shared_ptr<JointPush> JointSum::Reduce(Reduction reduction, GroupBuffers& buffers) {
  auto push = std::make_shared<JointPush>();
  push->learning_rate = parts_.front().who.learning_rate;
  size_t num_bytes = 0;
  for (const JointPart& part : parts_) num_bytes = std::max(num_bytes, part.num_bytes());
  StepAccumulator sum(reduction, num_bytes);
  double unit = 0;
  for (JointPart& part : std::exchange(parts_, {})) {
    push->contributors.push_back(part.who);
    const bool begins_sum = !sum.has_sum();
    if (!AddTo(sum, part, buffers)) return nullptr;
    // The accumulator divides by the weight of the part that its sum began with.
    const bool is_unit = begins_sum && (sum.has_sum() || unit == 0);
    if (is_unit && part.who.weight > 0) unit = part.who.weight;
  }
  push->has_gradient = sum.has_sum();
  const bool has_samples = push->has_gradient || unit > 0;
  if (!has_samples || !sum.is_finite()) return nullptr;
  if (unit > 0) push->unit = unit;
  if (push->has_gradient) push->sum = sum.TakeSum();
  return push;
}

}  // namespace pushpull
