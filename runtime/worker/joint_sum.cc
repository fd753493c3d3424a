// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/joint_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/store/step_accumulator.h"

namespace pushpull {
namespace {

size_t BytesOf(const JointPart& part) {
  return part.own.empty() ? part.values.num_bytes() : part.own.size_bytes();
}

// False: no memory.
bool AddTo(StepAccumulator& sum, JointPart& part, GroupBuffers& buffers) {
  const double weight = part.who.weight;
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
  StepAccumulator sum(reduction, BytesOf(parts_.front()));
  double unit = 0;
  for (JointPart& part : std::exchange(parts_, {})) {
    push->contributors.push_back(part.who);
    // The accumulator divides by the first weight above 0.
    if (unit == 0) unit = part.who.weight;
    if (!AddTo(sum, part, buffers)) return nullptr;
  }
  if (!sum.has_sum() || !sum.is_finite()) return nullptr;
  if (unit > 0) push->unit = unit;
  push->sum = sum.TakeSum();
  return push;
}

}  // namespace pushpull
