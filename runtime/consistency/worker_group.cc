// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/worker_group.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/consistency/sample_queue.h"

namespace pushpull {

bool IsSummedInGroups(const TensorSpec& tensor) {
  return tensor.dtype == DType::kFloat32 && tensor.codec == Codec::kNone && tensor.clip_norm == 0 &&
         !tensor.rows && tensor.name != kSampleQueueTensor;
}

void WorkerGroup::SetChunks(std::vector<uint64_t> bytes) {
  chunk_bytes_ = std::move(bytes);
  layouts_.clear();
}

void WorkerGroup::SetMembers(std::vector<GroupMember> members) {
  members_ = std::move(members);
}

std::vector<const GroupMember*> WorkerGroup::MembersIn(Step step) const {
  std::vector<const GroupMember*> in_step;
  in_step.reserve(members_.size());
  for (const GroupMember& member : members_)
    if (member.from_step <= step) in_step.push_back(&member);
  return in_step;
}

bool WorkerGroup::IsJoint(ChunkId chunk, Step step) const {
  const bool is_summed =
      chunk.value() < chunk_bytes_.size() && chunk_bytes_[chunk.value()] > 0 && members_.size() > 1;
  return is_summed && std::ranges::count_if(members_, [&](const GroupMember& member) {
                        return member.from_step <= step;
                      }) > 1;
}

const GroupMember& WorkerGroup::SummerOf(ChunkId chunk, Step step) const {
  const std::vector<const GroupMember*> in_step = MembersIn(step);
  const auto [layout, is_new] = layouts_.try_emplace(in_step.size());
  if (is_new) layout->second = LayoutFor(in_step.size());
  return *in_step[layout->second[chunk.value()]];
}

std::vector<uint8_t> WorkerGroup::LayoutFor(size_t members) const {
  std::vector<size_t> by_size(chunk_bytes_.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::ranges::stable_sort(
      by_size, std::ranges::greater{}, [&](size_t i) { return chunk_bytes_[i]; });
  std::vector<uint8_t> layout(chunk_bytes_.size());
  std::vector<uint64_t> carried(members);
  for (const size_t chunk : by_size) {
    const auto least = std::ranges::min_element(carried);
    layout[chunk] = static_cast<uint8_t>(least - carried.begin());
    *least += chunk_bytes_[chunk];
  }
  return layout;
}

}  // namespace pushpull
