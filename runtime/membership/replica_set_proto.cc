// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/replica_set_proto.h"

#include "absl/strings/str_cat.h"

#include "pushpull/v1/control.pb.h"

#include "runtime/base/status_macros.h"
#include "runtime/membership/stats_proto.h"

namespace pushpull {
namespace {

absl::StatusOr<std::vector<ServerId>> ReadServers(
    const google::protobuf::RepeatedField<uint32_t>& ids) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount("members of a replica set", ids.size(), kWireServersMax));
  std::vector<ServerId> servers;
  for (const uint32_t id : ids) servers.emplace_back(id);
  return servers;
}

}  // namespace

void ToProto(ShardId shard, const ReplicaSet& replicas, v1::ReplicaSet& out) {
  out.set_shard(shard.value());
  ToProto(replicas.epoch, *out.mutable_epoch());
  if (replicas.primary) out.set_primary(replicas.primary->value());
  for (const ServerId server : replicas.followers) out.add_followers(server.value());
  for (const ServerId server : replicas.learners) out.add_learners(server.value());
}

absl::StatusOr<ShardId> ShardFromProto(uint32_t value) {
  const ShardId shard{value};
  if (!IsShard(shard))
    return absl::InvalidArgumentError(absl::StrCat("shard ", value, " is not known"));
  return shard;
}

absl::StatusOr<std::pair<ShardId, ReplicaSet>> FromProto(const v1::ReplicaSet& wire) {
  ReplicaSet replicas{
      .epoch = FromProto(wire.epoch()),
      .primary = wire.has_primary() ? std::optional<ServerId>(wire.primary()) : std::nullopt,
      .followers = {},
      .learners = {}};
  PUSHPULL_ASSIGN_OR_RETURN(const ShardId shard, ShardFromProto(wire.shard()));
  PUSHPULL_ASSIGN_OR_RETURN(replicas.followers, ReadServers(wire.followers()));
  PUSHPULL_ASSIGN_OR_RETURN(replicas.learners, ReadServers(wire.learners()));
  return std::pair(shard, std::move(replicas));
}

absl::StatusOr<std::vector<std::pair<ShardId, ReplicaSet>>> FromProto(
    const ReplicaSetList& entries) {
  PUSHPULL_RETURN_IF_ERROR(
      CheckCount("replica sets", entries.size(), static_cast<int>(kShardCount)));
  std::vector<std::pair<ShardId, ReplicaSet>> result;
  for (const v1::ReplicaSet& entry : entries) {
    PUSHPULL_ASSIGN_OR_RETURN(auto replicas, FromProto(entry));
    result.push_back(std::move(replicas));
  }
  return result;
}

}  // namespace pushpull
