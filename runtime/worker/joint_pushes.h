// SPDX-License-Identifier: Apache-2.0
//
// A worker's part in its group (docs/decisions/0084-joint-pushes.md). Each member sums some of the
// chunks: the others send their gradients to it as they would to the primary, it pushes the sum
// for all of them, and passes the answer on. Whenever that does not work out, each worker pushes
// the chunk for itself, which is always correct: the primary counts a worker once.
//
//   own push    -> Route --> another member: its answer comes over that link
//                        --> this worker:    OnOwn, kept until everybody has contributed
//   their push  -> OnPeerFrame, kept likewise
//   all are here -> ChunkClient pushes the sum (ChunkRequest::joint) -> its answer -> PassOn
//   anything else -> every worker of the sum is told to push alone
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/executor.h"
#include "runtime/base/log.h"
#include "runtime/consistency/view.h"
#include "runtime/consistency/worker_group.h"
#include "runtime/membership/control.h"
#include "runtime/transport/lane_link.h"
#include "runtime/worker/group_buffers.h"
#include "runtime/worker/group_port.h"
#include "runtime/worker/joint_sum.h"
#include "runtime/worker/published_answer.h"
#include "runtime/worker/request_table.h"
#include "runtime/worker/shard_routes.h"

namespace pushpull {

// What a JointPushes asks of the ChunkClient, on its executor.
class JointPushesUser {
 public:
  virtual ~JointPushesUser() = default;
  // The chunk's push may be sent (again): its sum is complete, it is to be pushed alone, or the
  // link to the member that sums it is up.
  virtual void SendPush(ClientChunk& chunk) = 0;
};

// Thread-confined to its executor, destructor included.
class JointPushes final : private LaneLinkHandler, private GroupPortUser {
 public:
  struct Dependencies {
    Transport& transport;
    Executor& executor;
    RequestTable& chunks;
    ShardRoutes& routes;
    JointPushesUser& user;
    LaneLinkHandler& answers;  // gets members' answers to this worker's pushes
    const Log& log;
  };
  // All of them outlive this object. `port` null: this worker always pushes alone.
  JointPushes(Hello hello, std::shared_ptr<GroupPort> port, Dependencies dependencies);
  ~JointPushes() override;

  void SetTensors(const std::vector<PlacedTensor>& tensors);
  // Only in Sync, without backup workers and gates. Not while a push is under way.
  void UseMode(const Consistency& mode) { is_in_use_ = mode.is_sync() && !mode.is_led(); }
  // How long a sum waits for a worker, before the others push alone: a part of what counts as a
  // stall, so that servers see who is late.
  void SetStallLimit(Duration stall);
  void SetGroup(const SetGroup& message);

  // Where a push goes that is about to be sent. nullopt: to the primary. Null: nowhere for now,
  // SendPush follows; or it is kept here. Otherwise to the member that sums the chunk.
  std::optional<LaneLink*> Route(ClientChunk& chunk);
  // The primary has answered the chunk's push: if that was a sum's, passes the answer on. `offset`
  // is the primary's clock minus this worker's.
  void PassOn(const ClientChunk& chunk,
              const ChunkRequest& push,
              const ReceivedFrame& frame,
              Duration offset);
  // The sum does not count, or failed: every worker of it pushes alone, this one too.
  void Split(ClientChunk& chunk);
  // The chunk's sum, if there is one, comes to nothing: the others push alone.
  void Abandon(const ClientChunk& chunk);
  void Clear();
  // Sends pushes again that may have been lost on their way to a member.
  void ResendLost(Duration after);

 private:
  struct Peer;
  struct Waiter {
    Peer* peer;
    FrameHeader push;
  };
  struct Sum {
    JointSum parts;
    SteadyTime began;
    std::vector<Waiter> waiters;
    bool is_pushed = false;
  };
  struct Link {
    std::unique_ptr<LaneLink> link;
    SteadyTime down_since;
    bool is_refused = false;
    // Whether it is up, or was until recently.
    bool MayCome(SteadyTime now, Duration patience) const;
  };

  void OnLinkUp(LaneLink& link) override;
  void OnLinkRefused(LaneLink& link, const absl::Status& why) override;
  void OnLinkWaiting(LaneLink& link, const absl::Status& why, Duration lasted) override;
  std::span<std::byte> PayloadBuffer(LaneLink& link, const FrameHeader& header) override;
  void OnFrame(LaneLink& link, const ReceivedFrame& frame) override;
  void OnPeer(const Hello& hello, std::unique_ptr<Channel> channel) override;

  void OnOwn(ClientChunk& chunk);
  void OnPeerPush(Peer& peer, const FrameHeader& push, HostBuffer values);
  bool Sums(const Peer& peer, const FrameHeader& push, const ClientChunk& chunk) const;
  // Null: this chunk's sum is of another step.
  Sum* SumOf(const ClientChunk& chunk, Step step);
  void CompleteIfReady(ClientChunk& chunk);
  void PushAlone(ClientChunk& chunk);
  void TellToPushAlone(const Waiter& waiter);
  void Drop(Peer& peer);
  // Who sums the chunk's push; null: nobody.
  const GroupMember* SummerOf(const ClientChunk& chunk) const;
  // The chunk's push waits for the link to the member that sums it.
  bool AwaitsLink(const ClientChunk& chunk) const;
  void Tick();

  const Hello hello_;
  const std::shared_ptr<GroupPort> port_;
  Transport& transport_;
  Executor& executor_;
  RequestTable& chunks_;
  ShardRoutes& routes_;
  JointPushesUser& user_;
  LaneLinkHandler& answers_;
  const Log log_;

  const std::shared_ptr<GroupBuffers> buffers_ = std::make_shared<GroupBuffers>();
  bool is_in_use_ = false;
  Duration patience_ = std::chrono::seconds(1);
  std::vector<Reduction> reductions_;  // by chunk
  WorkerGroup group_;
  std::map<ChunkId, Sum> sums_;
  // After a worker was waited for in vain, this one sums nothing before this step.
  Step paused_until_;
  std::map<WorkerId, Link> links_;
  std::map<const Peer*, std::unique_ptr<Peer>> peers_;
  Executor::TimerId timer_ = 0;
};

}  // namespace pushpull
