// SPDX-License-Identifier: Apache-2.0
//
// A shard of two chunks of one tensor, of which this server is the primary without followers, and
// pushes to it.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/server/chunk.h"
#include "runtime/server/step_policy.h"
#include "runtime/shard/chunk.h"

namespace pushpull {

inline constexpr Incarnation kFirst{11};
inline constexpr Incarnation kSecond{22};
inline constexpr size_t kFloats = 4;  // of the second chunk

inline ViewMember Member(uint32_t worker, Incarnation incarnation = kFirst) {
  return {WorkerId{worker}, incarnation, Step{0}, std::nullopt};
}

inline FrameHeader PushOf(uint32_t worker, uint64_t step, Incarnation incarnation = kFirst) {
  return {.type = FrameType::kPushPull,
          .worker = WorkerId{worker},
          .incarnation = incarnation,
          .step = Step{step}};
}

inline HostBuffer Floats(size_t count, float value) {
  HostBuffer buffer = *HostBuffer::Zeroed(count * sizeof(float));
  std::fill(buffer.floats().begin(), buffer.floats().end(), value);
  return buffer;
}

// As a worker's gradient of ones; its request is answered with the next version.
inline ReceivedContribution ContributionOf(const FrameHeader& push, float value = 1) {
  return {.contribution = {.worker = push.worker,
                           .incarnation = push.incarnation,
                           .weight = push.weight,
                           .learning_rate = push.learning_rate,
                           .step = push.step},
          .values = Floats(kFloats, value),
          .waiter = {.request = push, .min_version = Step{push.step.value() + 1}}};
}

// As a push without a gradient.
inline ReceivedContribution ContributionWithout(const FrameHeader& push) {
  ReceivedContribution contribution = ContributionOf(push);
  contribution.values = {};
  contribution.has_gradient = false;
  return contribution;
}

class OneShard {
 public:
  explicit OneShard(OptimizerKind optimizer = OptimizerKind::kSum,
                    double clip_norm = 0,
                    DType dtype = DType::kFloat32,
                    Reduction reduction = Reduction::kSum)
      : tensor_{.id = TensorId{0},
                .spec = {.name = "w",
                         .dims = {kChunkBytes / sizeof(float) + kFloats},
                         .dtype = dtype,
                         .reduction = reduction,
                         .optimizer = {.kind = optimizer, .learning_rate = 1},
                         .clip_norm = clip_norm},
                .first_chunk = kLeadingChunk,
                .shards = {ShardId{0}, ShardId{0}}},
        shard_(
            ShardId{0}, ServerId{0}, std::array<ChunkPosition, 2>{{{&tensor_, 0}, {&tensor_, 1}}}) {
    Install(1, ServerId{0});
  }

  // Puts an entry with that primary in force.
  ShardMember::Change Install(uint64_t counter, ServerId primary) {
    ReplicaSet entry{.epoch = {Term{1}, counter}, .primary = primary};
    if (primary != ServerId{0}) entry.followers = {ServerId{0}};
    return shard_.member().Install(entry, ShardMember::Via::kFirst);
  }

  Shard& shard() { return shard_; }
  Chunk& leading() { return *shard_.chunks()[0]; }
  Chunk& chunk() { return *shard_.chunks()[1]; }

 private:
  const PlacedTensor tensor_;
  Shard shard_;
};

}  // namespace pushpull
