// SPDX-License-Identifier: Apache-2.0
//
// The worker's half of the data path: cuts tensors into chunks, sends each to the lane that owns
// it, keeps what has not been answered and resends it after a broken connection (docs/protocol.md
// section 3, points 1 and 5). Joining and views are handled in worker_member.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/executor.h"
#include "runtime/base/ids.h"
#include "runtime/base/log.h"
#include "runtime/consistency/uneven_steps.h"
#include "runtime/consistency/view.h"
#include "runtime/membership/control.h"
#include "runtime/replication/replica_frame.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/lane_link.h"
#include "runtime/worker/chunk_encoder.h"
#include "runtime/worker/chunk_sender.h"
#include "runtime/worker/clip_exchange.h"
#include "runtime/worker/codec_trial.h"
#include "runtime/worker/copy_offers.h"
#include "runtime/worker/exchange_client.h"
#include "runtime/worker/joint_pushes.h"
#include "runtime/worker/received_values.h"
#include "runtime/worker/request_table.h"
#include "runtime/worker/shard_routes.h"
#include "runtime/worker/step_agreement.h"
#include "runtime/worker/sync_meter.h"
#include "runtime/worker/worker_statistics.h"

namespace pushpull {

// Events of a ChunkClient, on its executor.
class ChunkClientObserver {
 public:
  virtual ~ChunkClientObserver() = default;
  // Backup workers, gated steps: this worker has all chunks in this version, which is the number of
  // the next step. The program is notified afterwards.
  virtual void OnStepSettled(Step version) = 0;
  // Chunks of this step had different contributors. Called once per step, with its number on the
  // wire, before the program is notified of the answer that reveals it.
  virtual void OnUnevenStep(Step step) = 0;
  // A request has been answered, or refused.
  virtual void OnAnswered() = 0;
  // The result of SendWhole (chunk_encoder.h).
  virtual void OnWhole(bool is_whole) = 0;
  // A server rejected this worker, or a request with an error that concerns the whole worker.
  virtual void OnBroken(const absl::Status& why) = 0;
};

// Dependencies of a ChunkClient; all of them outlive it.
struct ChunkClientDependencies {
  Transport& transport;
  Executor& executor;
  WorkerStatistics& statistics;
  ChunkClientObserver& observer;
  const Log& log;
};

// Thread-confined to its executor, constructor and destructor included.
class ChunkClient final : private LaneLinkHandler, private JointPushesUser {
 public:
  ChunkClient(ChunkClientOptions options, ChunkClientDependencies dependencies);
  ~ChunkClient() override;

  // Entries with a lower epoch than the known one are ignored; requests under way follow a moved
  // shard.
  void UpdateShards(const std::vector<std::pair<ShardId, ReplicaSet>>& entries);
  void SetServers(const std::vector<ServerEndpoint>& servers);
  // Once, before the first request.
  void SetTensors(const std::vector<PlacedTensor>& tensors);

  // The pending operation is done when every chunk is answered. A push of a tensor fails with
  // kFailedPrecondition while another one is under way.
  void Start(const TensorRequest& request);

  // Sets how steps are agreed on (step_agreement.h). Not while a push is under way.
  void UseMode(const Consistency& mode) {
    step_.UseMode(mode);
    joint_.UseMode(mode);
    exchanges_.UseMode(mode);
  }
  // Brings every chunk to the newest version that any has. `values` are pulls of every tensor that
  // has been pulled; no push may be under way.
  void CatchUp(const std::vector<TensorRequest>& values);

  // Async and Bounded: the worker has to leave, or to stop. A push of the sample queue is answered
  // without samples if there are none.
  void EndWaitForSamples() { sender_.EndWaitForSamples(); }
  // Pulls that wait for a version accept the current one.
  void LowerPulls() { sender_.LowerPulls(); }

  // From now on codecs are bypassed where steps are faster without them. Sums then depend on
  // timing, so not for deterministic jobs.
  void TryCodecs() { codec_trial_.emplace(); }
  // Makes the gradients of `step` include everything that codecs have left out of earlier ones;
  // OnWhole follows. Requires SetTensors.
  void SendWhole(Step step);
  void ForgetWhole() { encoder_.ForgetWhole(); }
  ReceivedValues& values() { return values_; }
  // Servers that can do so read gradients in this memory in place.
  void Share(std::shared_ptr<const SharedMemory> memory) { routes_.Share(std::move(memory)); }
  CopyOffers& offers() { return offers_; }
  ExchangeClient& exchanges() { return exchanges_; }
  JointPushes& joint() { return joint_; }
  const StepAgreement& step() const { return step_; }
  ShardRoutes& routes() { return routes_; }
  // Fails every request with `why`. Returns the first one's error, which names peer, tensor and
  // step; OK: there was no request.
  absl::Status FailAll(const absl::Status& why);

  const RequestTable& chunks() const { return chunks_; }
  // Raises every chunk's version to at least this one.
  void RaiseVersions(Step version) { chunks_.RaiseVersions(version); }

 private:
  using Slot = RequestTable::Slot;

  void OnLinkUp(LaneLink& link) override;
  void OnLinkWaiting(LaneLink& link, const absl::Status& why, Duration lasted) override;
  void OnLinkRefused(LaneLink& link, const absl::Status& why) override;
  std::span<std::byte> PayloadBuffer(LaneLink& link, const FrameHeader& header) override;
  bool TakesInPlace(LaneLink& link, const FrameHeader& header) override;
  void OnFrame(LaneLink& link, const ReceivedFrame& frame) override;

  void SendPush(ClientChunk& chunk) override;

  ChunkRequest MakeRequest(const TensorRequest& request, const ClientChunk& chunk);
  void NotifyIfWhole();
  void OnSynchronized(const SyncObservation& observation);

  // Sends what StepAgreement returns, until it has to wait for an answer.
  void AdvanceStep();
  void FinishStep(Step version);

  void ResendLost();
  // Runs on the executor after a short delay, unless the client is gone.
  void Later(std::function<void()> action);

  // The request whose value the frame carries; null: none.
  Slot AnsweredBy(const FrameHeader& header);
  void OnPublished(LaneLink& link, ClientChunk& chunk, const ReceivedFrame& frame);
  void OnMoved(ClientChunk& chunk, const ReceivedFrame& frame);
  // kHeld, kSquares.
  void OnNotice(LaneLink& link, ClientChunk& chunk, const FrameHeader& header);
  void OnRefused(LaneLink& link, ClientChunk& chunk, const ReceivedFrame& frame);
  bool IsOutdated(const ClientChunk& chunk, const FrameHeader& header) const;
  void At(SyncPhase phase) const;

  const ChunkClientOptions options_;
  const ChunkClientDependencies dependencies_;
  Executor& executor_;
  RequestTable chunks_;
  StepAgreement step_;
  std::optional<SyncMeter> meter_;
  UnevenSteps uneven_steps_;
  ReceivedValues values_;
  ChunkEncoder encoder_;
  std::optional<CodecTrial> codec_trial_;
  ShardRoutes routes_;
  JointPushes joint_;
  ChunkSender sender_;
  ClipExchange clip_;
  CopyOffers offers_;
  ExchangeClient exchanges_;
  Executor::TimerId loss_timer_ = 0;
  std::shared_ptr<ChunkClient*> self_;  // expired for timers once the client is gone
};

}  // namespace pushpull
