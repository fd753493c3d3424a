// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/shard_routes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "runtime/transport/lane.h"

namespace pushpull {

std::string NameOf(const LaneLink& link) {
  return absl::StrCat(ToString(link.server()), " (", link.address(), ")");
}

ShardRoutes::ShardRoutes(
    Transport& transport, Executor& executor, Hello hello, LaneLinkHandler& handler, const Log& log)
    : transport_(transport),
      executor_(executor),
      hello_(std::move(hello)),
      handler_(handler),
      log_(log) {}

std::vector<bool> ShardRoutes::Update(const std::vector<std::pair<ShardId, ReplicaSet>>& entries) {
  std::vector<bool> is_moved(kShardCount, false);
  for (const auto& [shard, entry] : entries) {
    if (!IsShard(shard)) continue;
    const std::optional<ServerId> before = shards_.entry(shard).primary;
    if (shards_.Update(shard, entry) && before != entry.primary) is_moved[shard.value()] = true;
  }
  return is_moved;
}

std::vector<std::pair<ShardId, ReplicaSet>> ShardRoutes::Entries() const {
  std::vector<std::pair<ShardId, ReplicaSet>> entries;
  for (uint32_t i = 0; i < kShardCount; ++i) {
    const ShardId shard{i};
    if (shards_.is_placed(shard)) entries.emplace_back(shard, shards_.entry(shard));
  }
  return entries;
}

ServerId ShardRoutes::PrimaryOf(ShardId shard) const {
  return shards_.entry(shard).primary.value_or(ServerId{});
}

LaneLink* ShardRoutes::ToPrimary(ShardId shard) {
  const std::optional<ServerId> primary = shards_.entry(shard).primary;
  return primary ? To(*primary, shard) : nullptr;
}

void ShardRoutes::SetServers(const std::vector<ServerEndpoint>& servers) {
  std::erase_if(links_, [&](const auto& known) {
    return std::ranges::none_of(servers, [&](const auto& s) { return s.server == known.first; });
  });
  for (const ServerEndpoint& server : servers) {
    auto& links = links_[server.server];
    if (!links.empty() && links.front()->address() == server.data_address) continue;
    links.clear();
    for (uint32_t lane = 0; lane < server.lanes; ++lane) {
      LaneLinkTarget target{
          .server = server.server, .address = server.data_address, .hello = hello_};
      target.hello.lane = lane;
      links.push_back(
          std::make_unique<LaneLink>(transport_, executor_, std::move(target), handler_));
    }
  }
}

LaneLink* ShardRoutes::To(ServerId server, ShardId shard) {
  const auto links = links_.find(server);
  if (links == links_.end() || links->second.empty()) return nullptr;
  return links->second[LaneOf(shard, links->second.size())].get();
}

void ShardRoutes::Share(std::shared_ptr<const SharedMemory> memory) {
  for (const auto& [server, links] : links_) {
    for (const std::unique_ptr<LaneLink>& link : links) ShareOver(*link, memory);
  }
  shared_.push_back(std::move(memory));
}

void ShardRoutes::ShareAllOver(LaneLink& link) {
  for (const auto& memory : shared_) ShareOver(link, memory);
}

void ShardRoutes::ShareOver(LaneLink& link, const std::shared_ptr<const SharedMemory>& memory) {
  if (link.channel() == nullptr) return;  // when it is up
  link.channel()->Share(
      memory, [log = log_, has_warned = has_warned_, peer = NameOf(link)](const absl::Status& why) {
        if (std::exchange(*has_warned, true)) return;
        log.Warning("a server on this host copies gradients instead of reading them in place",
                    {{"peer", peer}, {"why", why.message()}});
      });
}

}  // namespace pushpull
