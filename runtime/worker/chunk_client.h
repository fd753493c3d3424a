// SPDX-License-Identifier: Apache-2.0
//
// The worker's half of the data path: cuts tensors into chunks, sends each to the lane that owns
// it, keeps what is not answered and sends it again after a broken connection (protocol.md section
// 3, points 1 and 5). Joining, views and the program's threads are worker_node.h's business.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/executor.h"
#include "runtime/base/ids.h"
#include "runtime/consistency/admission.h"
#include "runtime/consistency/uneven_steps.h"
#include "runtime/consistency/view.h"
#include "runtime/membership/control.h"
#include "runtime/replication/replica_frame.h"
#include "runtime/shard/shard_map.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/lane_link.h"
#include "runtime/worker/chunk_copies.h"
#include "runtime/worker/chunk_encoder.h"
#include "runtime/worker/codec_trial.h"
#include "runtime/worker/pending_operation.h"
#include "runtime/worker/push_window.h"
#include "runtime/worker/sync_meter.h"

namespace pushpull {

struct ChunkClientOptions {
  Hello hello;  // its lane is filled in for each connection
  // After this long without an answer a request is sent again where the channel may lose frames.
  Duration resend_after = std::chrono::seconds(2);
  FaultPoint fault_point;  // for tests
};

// What ChunkClient reports. Called on its executor.
class ChunkClientObserver {
 public:
  virtual ~ChunkClientObserver() = default;
  virtual void OnPushed(absl::string_view channel, uint64_t bytes) = 0;
  virtual void OnPulled(absl::string_view channel, uint64_t bytes) = 0;
  virtual void OnResend() = 0;
  // So many finite values of the push, which its servers hold for not finite now.
  virtual void OnOverflow(const std::string& push, Codec codec, uint64_t values) = 0;
  // Backup workers, gated steps: all chunks are here in this version, which is the number of the
  // next step. The program is told afterwards.
  virtual void OnStepSettled(Step version) = 0;
  // Chunks of this step had different contributors. Once a step, by its number on the wire; the
  // program has not been told of the answer that shows it.
  virtual void OnUnevenStep(Step step) = 0;
  // A request has been answered, or refused.
  virtual void OnAnswered() = 0;
  // A server's lane cannot be reached, or asks again and again for a request to be repeated.
  virtual void OnWaiting(const std::string& peer, const absl::Status& why, Duration lasted) = 0;
  // A server on this host copies what it could have read where it lies.
  virtual void OnNotShared(const std::string& peer, const absl::Status& why) = 0;
  // What became of SendWhole (chunk_encoder.h).
  virtual void OnWhole(bool is_whole) = 0;
  virtual void OnCodecsTried(const CodecVerdict& verdict) = 0;
  virtual void OnSynchronized(const SyncObservation& observation) = 0;
  // A server will not have this worker, or refused a request in a way that ends it.
  virtual void OnBroken(const absl::Status& why) = 0;
};

// One tensor's request, cut into chunks by the client.
struct TensorRequest {
  FrameType type = FrameType::kPushPull;  // kInit, kPush, kPull or kPushPull
  size_t tensor = 0;                      // position in the job's list
  Step step;                              // kPull: the lowest version wanted
  Step clock = {};                        // kPull: the number of the worker's next step
  std::span<const std::byte> source;  // gradient or initial value; the caller keeps it until done
  std::span<std::byte> target;        // where the answer goes; may be empty for kPush
  double weight = 1;
  double learning_rate = 0;
  uint8_t priority = 0;
  bool is_kept = false;         // the program leaves the answer in `target`: it counts as a copy
  bool takes_in_place = false;  // the answer need not come to `target`: `pending` says where it is
  SteadyTime ready;
  std::shared_ptr<PendingOperation> pending;
};

// Thread-confined to its executor, constructor and destructor included.
class ChunkClient final : public LaneLinkHandler {
 public:
  // `transport`, `executor` and `observer` outlive the client.
  ChunkClient(ChunkClientOptions options,
              Transport& transport,
              Executor& executor,
              ChunkClientObserver& observer);
  ~ChunkClient() override;

  // Entries of a lower epoch than known are ignored; requests under way follow a moved shard.
  void UpdateShards(const SetReplicas& replicas);
  // A coordinator of this term is in charge: entries of a lower one are refused from now on.
  void PromiseTerm(Term term) { shards_.Promise(term); }
  // Of every shard that has one here.
  std::vector<std::pair<ShardId, ReplicaSet>> Entries() const;
  // Connects to every lane of every server that is new or has moved; forgets those that are gone.
  void SetServers(const std::vector<ServerEndpoint>& servers);
  // Once, before the first request.
  void SetTensors(const std::vector<PlacedTensor>& tensors);

  // The pending operation is done when every chunk is answered. A second push of a tensor whose
  // first is under way fails with kFailedPrecondition.
  void Start(const TensorRequest& request);

  // With backup workers a step is pushed when all of its tensors are here and this worker is
  // admitted to it; a gated one is applied when all of it has come to its servers. Not while a push
  // is under way.
  void UseMode(const Consistency& mode);
  // Brings every chunk to one version, the newest that any has. `values` are pulls of every tensor
  // that has been pulled; no push may be under way.
  void CatchUp(const std::vector<TensorRequest>& values);

  // Pulls that wait for a version take what there is from now on.
  void LowerPulls();

  // From now on codecs are left out where steps are faster without. What is added depends on time
  // then: not for deterministic jobs.
  void TryCodecs() { codec_trial_.emplace(); }
  // In `step` gradients go with all that codecs have left out of earlier ones; OnWhole follows.
  // Once the tensors are set.
  void SendWhole(Step step);
  void ForgetWhole() { encoder_.ForgetWhole(); }
  // From now on a value is received elsewhere and put into its place when it is whole, so that the
  // one before is never half overwritten.
  void KeepCopies() { keeps_copies_ = true; }
  // Gradients in this memory are read from there by servers that can.
  void Share(std::shared_ptr<const SharedMemory> memory);
  // What is here of the shard's chunks. Offers of them are void.
  std::vector<ChunkCopy> CopiesOf(ShardId shard);
  // Sends copies to the server that makes the shard anew, until it reigns.
  void Offer(const OfferCopies& order);
  bool has_offers() const { return !offers_.empty(); }
  // The program's memory is its own again.
  void ForgetCopies() { copies_.Clear(); }

  // Ends every request with `why`; returns the text of the first, which names peer, tensor and
  // step.
  absl::Status FailAll(const absl::Status& why);

  // Lowest version known over all chunks: in synchronous mode the step this worker can do next.
  Step LowestVersion() const;
  // Lowest clock over all chunks: the number after the last step of this worker that all have
  // answered; 0 before the first.
  Step LowestClock() const;
  // A push waits for its answer.
  bool has_pushes() const;
  // Every chunk has at least this version from now on.
  void RaiseVersions(Step version);

  void OnLinkUp(LaneLink& link) override;
  void OnLinkWaiting(LaneLink& link, const absl::Status& why, Duration lasted) override;
  void OnLinkRefused(LaneLink& link, const absl::Status& why) override;
  std::span<std::byte> PayloadBuffer(LaneLink& link, const FrameHeader& header) override;
  bool TakesInPlace(LaneLink& link, const FrameHeader& header) override;
  void OnFrame(LaneLink& link, const ReceivedFrame& frame) override;

 private:
  // One chunk of a TensorRequest.
  struct Request {
    FrameType type;
    Step step;
    Step clock;
    Step base_version;
    std::span<const std::byte> source;
    std::span<std::byte> target;
    double weight;
    double learning_rate;
    uint8_t priority;
    bool is_kept;
    bool takes_in_place;
    ServerId server;
    EncodedGradient encoded;  // sent in place of `source`
    PushTimes times;
    SteadyTime sent;
    bool must_send = false;    // it is not on its way to the shard's primary
    bool waits = false;        // in the window, for its turn
    bool is_again = false;     // what waits has been sent before
    bool is_held = false;      // not sent before it is its turn (chunk_admission.cc)
    bool is_taken = false;     // gated: the shard's primary holds it until the step is decided
    bool is_answered = false;  // kept for its target and pending until the whole step is
    // Of what is in `target`, or would be; chunk.version may be of what the program has pulled
    // elsewhere.
    Step held_version = {};
    PhaseTimes phases = {};  // once it is answered
    std::shared_ptr<PendingOperation> pending;
  };
  // A chunk has at most one push (or initial value), one pull and, where the leading chunk decides
  // who counts, one fetch under way.
  struct Chunk {
    ShardId shard;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    Step version;
    Step clock;
    std::optional<Request> push;
    std::optional<Request> pull;
    std::optional<Request> fetch;
  };
  using Slot = std::optional<Request> Chunk::*;
  // A copy of the chunk for the primary of an entry that is not in force yet.
  struct CopyOffer {
    Epoch epoch;
    ServerId primary;
    SteadyTime sent;
  };
  enum class StepPhase { kCollecting, kAsked, kSettling };

  bool IsLeading(const Chunk& chunk) const;
  void Collect(const TensorRequest& request);
  void HearAdmission(const ReceivedFrame& frame, std::span<const std::byte>& meta);
  void OnStepAnswered(Chunk& chunk, Slot slot, Request request, Step version);
  void OnDecided();
  void Settle();
  void Fetch(const std::vector<Chunk*>& chunks, Step version);
  void FinishStep(Step version);
  void FailStep(const absl::Status& why);
  void BeginStep();
  void Ask();

  // chunk_gate.cc
  void OnHeld(LaneLink& link, Chunk& chunk, const FrameHeader& header);
  void AskIfHeld();
  void SendDecision(const Chunk& chunk);

  Request MakeRequest(const TensorRequest& request, size_t chunk);
  // A contribution to a step on which the leading chunk decides.
  bool IsOfStep(const TensorRequest& request) const;
  EncodedGradient EncodePush(const TensorRequest& request, size_t chunk);
  void TellIfWhole();
  void OnStepSynchronized(const SyncObservation& observation);
  // Now, or with a payload when it is its turn.
  void Send(Chunk& chunk, Request& request, bool is_again);
  void SendWaiting();
  void Transmit(Chunk& chunk, Request& request, bool is_again);
  void SendAgain(const std::function<bool(const Chunk&, const Request&)>& is_due);
  void ForEachRequest(const std::function<void(Chunk&, Slot)>& visit);
  // The request that an answer is for; null when it is for none (a duplicate).
  static Slot AnsweredBy(const Chunk& chunk, const FrameHeader& answer);
  void OnPublished(LaneLink& link, Chunk& chunk, const ReceivedFrame& frame);
  // Brings an answer's value to where the program looks for it.
  void TakeValue(const Chunk& chunk, const Request& request, const ReceivedFrame& frame);
  // The entry that came with an answer; none where the answer is not to be believed.
  std::optional<ShardEntry> ReadNews(const Chunk& chunk, std::span<const std::byte> meta) const;
  void CompareContributors(Step version, const absl::StatusOr<PublishedTiming>& timing);
  void OnMoved(Chunk& chunk, const ReceivedFrame& frame);
  // Takes a shard's entry; requests that are now elsewhere, or nowhere, are sent to its primary.
  void Learn(const std::vector<std::pair<ShardId, ReplicaSet>>& entries);
  void OnRefused(LaneLink& link, Chunk& chunk, const ReceivedFrame& frame);
  static Slot RefusedBy(const Chunk& chunk, const FrameHeader& refusal);
  void CheckForLoss();
  LaneLink* LinkFor(ShardId shard);
  LaneLink* LinkTo(ServerId server, ShardId shard);
  std::span<std::byte> WholeBuffer(LaneLink& link, size_t bytes);
  void SendOffer(ChunkId chunk, CopyOffer& offer);
  void SendOffers(const std::function<bool(LaneLink&, const CopyOffer&)>& is_due);
  Chunk* Find(ChunkId chunk);
  bool IsOutdated(const Chunk& chunk, const FrameHeader& header) const;
  void At(SyncPhase phase) const;
  void ShareOver(LaneLink& link, const std::shared_ptr<const SharedMemory>& memory);

  const ChunkClientOptions options_;
  Transport& transport_;
  Executor& executor_;
  ChunkClientObserver& observer_;
  ShardMap shards_;
  std::vector<std::pair<size_t, size_t>> tensor_chunks_;  // first chunk and how many, by tensor
  std::vector<Chunk> chunks_;                             // by ChunkId
  uint64_t reads_ = 0;                                    // pulls and fetches begun
  bool is_led_ = false;    // the leading chunk says who counts in a step
  bool is_gated_ = false;  // and is pushed last, not first
  StepPhase step_phase_ = StepPhase::kCollecting;
  size_t tensors_pushed_ = 0;           // of the step that is collected
  std::optional<Admission> admission_;  // the newest heard of
  std::vector<std::byte> scratch_;      // for values that nobody wants
  std::optional<SyncMeter> meter_;
  UnevenSteps uneven_steps_;
  ChunkCopies copies_;
  ChunkEncoder encoder_;
  std::optional<CodecTrial> codec_trial_;
  std::map<ChunkId, CopyOffer> offers_;
  bool keeps_copies_ = false;
  std::vector<std::shared_ptr<const SharedMemory>> shared_;
  // What is on its way over each link, by server and lane. Outlives the links.
  std::map<std::pair<ServerId, uint32_t>, HostBuffer> arriving_;
  Executor::TimerId loss_timer_ = 0;
  PushWindow window_;
  std::map<ServerId, std::vector<std::unique_ptr<LaneLink>>> links_;  // by lane
  std::shared_ptr<ChunkClient*> self_;  // what a timer looks at: gone when the client is
};

}  // namespace pushpull
