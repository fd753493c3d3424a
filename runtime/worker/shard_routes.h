// SPDX-License-Identifier: Apache-2.0
//
// Which server is primary of each shard, as far as this worker knows, and the connections to the
// lanes of all servers: the memory that is shared over them, and the buffers that values are
// received into.
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
#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/lane_link.h"

namespace pushpull {

// "server-1 (127.0.0.1:7171)".
std::string NameOf(const LaneLink& link);

// Thread-confined to its executor, constructor and destructor included.
class ShardRoutes {
 public:
  // `transport`, `executor` and `handler` outlive the links. The lane of `hello` is set for each.
  ShardRoutes(Transport& transport,
              Executor& executor,
              Hello hello,
              LaneLinkHandler& handler,
              const Log& log);

  // Takes the entries of higher epochs than known. Returns whether each shard's primary has
  // changed, by shard.
  std::vector<bool> Update(const std::vector<std::pair<ShardId, ReplicaSet>>& entries);
  // Entries of a lower term are rejected from now on.
  void Promise(Term term) { shards_.Promise(term); }
  Term promised() const { return shards_.promised(); }
  // Of every shard that has one.
  std::vector<std::pair<ShardId, ReplicaSet>> Entries() const;
  // The shard has lost its primary, and nobody has taken over yet.
  bool IsLost(ShardId shard) const {
    return shards_.is_placed(shard) && !shards_.entry(shard).primary;
  }
  Epoch EpochOf(ShardId shard) const { return shards_.entry(shard).epoch; }
  // Server 0 while there is none: for texts and counts only.
  ServerId PrimaryOf(ShardId shard) const;

  // Connects to every lane of every server that is new or has another address; disconnects from
  // servers that are not listed.
  void SetServers(const std::vector<ServerEndpoint>& servers);
  // The link to the shard's lane of the server; null: the server is unknown.
  LaneLink* To(ServerId server, ShardId shard);
  // The link to the shard's primary; null: there is none.
  LaneLink* ToPrimary(ShardId shard);

  // Shares the memory over every link, also those that are made later.
  void Share(std::shared_ptr<const SharedMemory> memory);
  // Shares all memory over a link that has just connected.
  void ShareAllOver(LaneLink& link);

  // A buffer of the link's own of that size; empty: out of memory. Its contents are overwritten by
  // the next value that the link receives.
  std::span<std::byte> ReceiveBuffer(const LaneLink& link, size_t num_bytes);

 private:
  void ShareOver(LaneLink& link, const std::shared_ptr<const SharedMemory>& memory);

  Transport& transport_;
  Executor& executor_;
  const Hello hello_;
  LaneLinkHandler& handler_;
  ShardMap shards_;
  // Whether there was a warning that a server copies what it could read in place. Channels report
  // it even when this object is gone.
  const std::shared_ptr<bool> has_warned_ = std::make_shared<bool>(false);
  const Log log_;
  std::vector<std::shared_ptr<const SharedMemory>> shared_;
  // By server and lane. Outlives the links, which may be receiving into it.
  std::map<std::pair<ServerId, uint32_t>, HostBuffer> buffers_;
  std::map<ServerId, std::vector<std::unique_ptr<LaneLink>>> links_;  // by lane
};

}  // namespace pushpull
