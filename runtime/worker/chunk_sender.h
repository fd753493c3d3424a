// SPDX-License-Identifier: Apache-2.0
//
// Sends requests on chunks to the primaries of their shards, or pushes to the workers of the group
// that sum them: payloads through the push window, most
// urgent first. Resends everything that may have been lost.
#pragma once

#include <functional>
#include <vector>

#include "runtime/base/executor.h"
#include "runtime/membership/control.h"
#include "runtime/metrics/sync_phase.h"
#include "runtime/transport/hello.h"
#include "runtime/worker/joint_pushes.h"
#include "runtime/worker/push_window.h"
#include "runtime/worker/request_table.h"
#include "runtime/worker/shard_routes.h"
#include "runtime/worker/step_agreement.h"
#include "runtime/worker/worker_statistics.h"

namespace pushpull {

struct ChunkClientOptions {
  Hello hello;  // its lane is filled in for each connection
  // On channels that may lose frames, a request is resent after this long without an answer.
  Duration resend_after = std::chrono::seconds(2);
  FaultPoint fault_point;  // for tests
  // Where the other workers of a group reach this one; null: it pushes alone.
  std::shared_ptr<GroupPort> group_port = {};
};

// Thread-confined to its executor.
class ChunkSender {
 public:
  // All references outlive this object.
  ChunkSender(const ChunkClientOptions& options,
              Executor& executor,
              WorkerStatistics& statistics,
              RequestTable& chunks,
              const StepAgreement& step,
              ShardRoutes& routes,
              JointPushes& joint);

  // Sets the window to what the connections to these servers need.
  void SetServers(const std::vector<ServerEndpoint>& servers);

  // Sends at once or, with a payload, when the window has room. Does nothing while the step holds
  // the request back; if the connection is down or the shard has no primary, call SendAgain later.
  void Send(ClientChunk& chunk, ChunkRequest& request, bool is_again);
  // Resends the unanswered requests that are due.
  void SendAgain(const std::function<bool(const ClientChunk&, const ChunkRequest&)>& is_due);
  // Resends requests not answered in time that went over a channel that may lose frames.
  void ResendLost();
  // Resends pulls that wait for a version, to be answered with the current one.
  void LowerPulls();
  // Resends the push of the sample queue, to be answered at once.
  void EndWaitForSamples();
  // Sends the leading chunk's decision to the chunk's primary, unless the push is already answered.
  void SendDecision(const ClientChunk& chunk);
  // Sends the scale that clips the step of the chunk's push, unless the push is answered.
  void SendScale(const ClientChunk& chunk, double scale);

 private:
  // The channel for frames that accompany the chunk's push; null: the push is answered, or is being
  // resent along with them.
  Channel* Accompanies(const ClientChunk& chunk) const;
  FrameHeader HeaderTo(const ClientChunk& chunk, FrameType type) const;
  void SendWaiting();
  void Transmit(ClientChunk& chunk, ChunkRequest& request, bool is_again);
  OutgoingFrame FrameOf(const ClientChunk& chunk, const ChunkRequest& request);

  const ChunkClientOptions& options_;
  Executor& executor_;
  WorkerStatistics& statistics_;
  RequestTable& chunks_;
  const StepAgreement& step_;
  ShardRoutes& routes_;
  JointPushes& joint_;
  PushWindow window_;
};

}  // namespace pushpull
