// SPDX-License-Identifier: Apache-2.0
//
// Which server is primary of each shard, as far as this worker knows, and the connections to the
// lanes of all servers, with the memory shared over them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/executor.h"
#include "runtime/base/ids.h"
#include "runtime/base/log.h"
#include "runtime/membership/control.h"
#include "runtime/shard/shard_map.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/lane_link.h"

namespace pushpull {

// "server-1 (127.0.0.1:7171)".
std::string NameOf(const LaneLink& link);

// Thread-confined to its executor, constructor and destructor included.
class ShardRoutes {
 public:
  // `transport`, `executor` and `handler` outlive the links. `hello`'s lane is set for each link.
  ShardRoutes(Transport& transport,
              Executor& executor,
              Hello hello,
              LaneLinkHandler& handler,
              const Log& log);

  // Takes entries of higher epochs than the known ones. Returns, by shard, whether its primary has
  // changed.
  std::vector<bool> Update(const std::vector<std::pair<ShardId, ReplicaSet>>& entries);
  // Entries of a lower term are rejected from now on.
  void Promise(Term term) { shards_.Promise(term); }
  Term promised() const { return shards_.promised(); }
  // The entries of all shards that have one.
  std::vector<std::pair<ShardId, ReplicaSet>> Entries() const;
  // The shard has lost its primary and has no new one yet.
  bool IsLost(ShardId shard) const {
    return shards_.is_placed(shard) && !shards_.entry(shard).primary;
  }
  const ReplicaSet& EntryOf(ShardId shard) const { return shards_.entry(shard); }
  Epoch EpochOf(ShardId shard) const { return shards_.entry(shard).epoch; }
  // Server 0 while there is none: only for texts and counts.
  ServerId PrimaryOf(ShardId shard) const;

  // Connects to every lane of every server that is new or has another address; disconnects from
  // servers that are not listed.
  void SetServers(const std::vector<ServerEndpoint>& servers);
  // The link to the shard's lane of the server; null: the server is unknown.
  LaneLink* To(ServerId server, ShardId shard);
  // The link to the shard's primary; null: there is none.
  LaneLink* ToPrimary(ShardId shard);

  // Shares the memory over every link, including later ones.
  void Share(std::shared_ptr<const SharedMemory> memory);
  // Shares all memory over a link that has just connected.
  void ShareAllOver(LaneLink& link);

 private:
  void ShareOver(LaneLink& link, const std::shared_ptr<const SharedMemory>& memory);

  Transport& transport_;
  Executor& executor_;
  const Hello hello_;
  LaneLinkHandler& handler_;
  ShardMap shards_;
  // Whether a warning was logged that a server copies what it could read in place. Channels may
  // report that even when this object is gone.
  const std::shared_ptr<bool> has_warned_ = std::make_shared<bool>(false);
  const Log log_;
  std::vector<std::shared_ptr<const SharedMemory>> shared_;
  std::map<ServerId, std::vector<std::unique_ptr<LaneLink>>> links_;  // by lane
};

}  // namespace pushpull
