// SPDX-License-Identifier: Apache-2.0
//
// Structs <-> proto/pushpull/v1/control.proto for shards and their entries, which several messages
// have. See stats_proto.h.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <google/protobuf/repeated_ptr_field.h>

#include "runtime/shard/shard_map.h"

namespace pushpull {

namespace v1 {
class ReplicaSet;
}  // namespace v1

using ReplicaSetList = google::protobuf::RepeatedPtrField<v1::ReplicaSet>;

void ToProto(ShardId shard, const ReplicaSet& replicas, v1::ReplicaSet& out);
absl::StatusOr<ShardId> ShardFromProto(uint32_t value);
absl::StatusOr<std::pair<ShardId, ReplicaSet>> FromProto(const v1::ReplicaSet& wire);
absl::StatusOr<std::vector<std::pair<ShardId, ReplicaSet>>> FromProto(
    const ReplicaSetList& entries);

}  // namespace pushpull
