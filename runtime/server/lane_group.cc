// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/lane_group.h"

namespace pushpull {

LaneGroup::LaneGroup(Transport& transport,
                     Executor& control,
                     const std::function<std::shared_ptr<Lane>(size_t index)>& make)
    : transport_(transport), control_(control) {
  for (size_t i = 0; i < transport.lane_count(); ++i) lanes_.push_back(make(i));
}

LaneGroup::~LaneGroup() {
  for (size_t i = 0; i < lanes_.size(); ++i)
    transport_.lane(i).Post([lane = std::move(lanes_[i])] {});
}

void LaneGroup::Post(size_t index, std::function<void(Lane&)> task) {
  transport_.lane(index).Post([task = std::move(task), lane = lanes_[index]] { task(*lane); });
}

void LaneGroup::PostToAll(const std::function<void(Lane&)>& task) {
  for (size_t i = 0; i < lanes_.size(); ++i) Post(i, task);
}

LaneGroup::Remote LaneGroup::remote() const {
  const std::vector<std::weak_ptr<Lane>> lanes(lanes_.begin(), lanes_.end());
  return [lanes, &transport = transport_](ShardId shard, std::function<void(Lane&)> task) {
    const size_t index = LaneOf(shard, lanes.size());
    transport.lane(index).Post([task = std::move(task), held = lanes[index]] {
      if (const auto lane = held.lock()) task(*lane);
    });
  };
}

}  // namespace pushpull
