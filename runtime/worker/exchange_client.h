// SPDX-License-Identifier: Apache-2.0
//
// A worker's half of the exchanges (docs/decisions/0057-collectives-over-servers.md): cuts an array
// into pieces, sends each to the primary of its shard, and keeps everything until the next exchange
// is done: only then do all workers have the result, and nobody asks for it any more.
//
// A message (docs/decisions/0058-messages-over-servers.md) is an exchange in the stream of its
// pair. Its sender is done when the receiver has everything, and keeps nothing; the receiver
// remembers that it has the message until the pair's next one.
//
// After every change of a shard's entry and every reconnect the pieces are sent again: answered
// ones as results, so that a worker whose answer was lost receives the same one from the next
// primary.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/executor.h"
#include "runtime/consistency/view.h"
#include "runtime/exchange/exchange_frame.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/lane_link.h"
#include "runtime/worker/chunk_sender.h"
#include "runtime/worker/pending_operation.h"
#include "runtime/worker/request_table.h"
#include "runtime/worker/shard_routes.h"

namespace pushpull {

// One exchange that the program waits for.
struct ExchangeOperation {
  ExchangeOperation(const ExchangeSpec& of,
                    Step at,
                    uint64_t program_step,
                    HostBuffer values,
                    std::string label_of = "");

  const ExchangeSpec spec;
  const Step step;                                // as on the wire
  const std::shared_ptr<const HostBuffer> input;  // this worker's array; shared with frames
  const std::string label;                        // for a message to another worker
  PendingOperation pending;
  // Set when `pending` is done without an error.
  std::vector<WorkerId> workers;                           // who contributed, ascending
  std::vector<std::shared_ptr<const HostBuffer>> results;  // of each piece
  std::optional<MessageHead> head;                         // for a received message
};

// Thread-confined to its executor.
class ExchangeClient {
 public:
  // All references outlive this object.
  ExchangeClient(const ChunkClientOptions& options,
                 Executor& executor,
                 RequestTable& chunks,
                 ShardRoutes& routes);
  // Fails with kFailedPrecondition while another exchange of its stream is under way, or in a mode
  // without exchanges.
  void Start(std::shared_ptr<ExchangeOperation> operation);
  // Sets how steps are agreed on.
  void UseMode(const Consistency& mode);
  void FailAll(const absl::Status& why);

  // The buffer that an answer is received into; empty: the answer is not wanted.
  std::span<std::byte> PlacePayload(const LaneLink& link, const FrameHeader& header);
  // Handles a kExchanged. Returns an entry that is new to this worker, for all users of routes.
  std::optional<ShardEntry> OnFrame(const LaneLink& link, const ReceivedFrame& frame);

  // To be called when entries may have changed.
  void OnEntries();
  void OnLinkUp(const LaneLink& link);
  // Resends unanswered frames that went over a channel that may lose frames.
  void ResendLost();

 private:
  struct Piece {
    // Null until answered; has no values for a message whose values this worker does not need.
    std::shared_ptr<const HostBuffer> result;
    std::vector<WorkerId> workers;  // of the result
    bool is_delivered = false;      // the primary needs nothing more
    bool is_under_way = false;
    Epoch epoch;  // under which the piece was sent
    SteadyTime sent = {};
  };
  struct Exchange {
    std::shared_ptr<ExchangeOperation> operation;
    ExchangeId id;
    ExchangeSpec spec;  // the operation's, or as the receiver of a message has learned it
    std::vector<Piece> pieces;
  };
  // Consecutive exchanges: the collectives, or the messages of one pair.
  struct Stream {
    std::optional<Exchange> current;
    std::optional<Exchange> kept;  // the previous one
    ExchangeId next;
  };

  bool Receives(const ExchangeSpec& spec) const {
    return spec.pair && spec.pair->to == options_.hello.worker;
  }
  ShardId ShardOf(const Exchange& exchange, size_t piece);
  ChunkId ChunkOf(const Exchange& exchange, size_t piece);
  Exchange* Find(const ExchangeKey& key);
  void Begin(std::shared_ptr<ExchangeOperation> operation);
  // Sends everything that may be sent now.
  void SendDue();
  void SendDue(Stream& stream);
  void Send(Exchange& exchange, size_t index);
  // Resends the pieces for which `is_due` returns true.
  void SendAgain(const std::function<bool(ShardId shard, const Piece&)>& is_due);
  void SendLater(const ExchangeKey& key);
  // Returns an entry that is new to this worker.
  std::optional<ShardEntry> OnRejected(const LaneLink& link,
                                       const ExchangeKey& key,
                                       ExchangeAnswer answer);
  // Takes an answer with what was asked for; a null `result` confirms that the piece was taken.
  // Returns false if the piece must be sent again.
  bool TakeResult(Exchange& exchange,
                  const ExchangeKey& key,
                  ExchangeAnswer answer,
                  std::shared_ptr<const HostBuffer> result);
  bool TakeMessagePiece(Exchange& exchange,
                        const ExchangeKey& key,
                        ExchangeAnswer answer,
                        std::shared_ptr<const HostBuffer> result);
  void FinishIfComplete(Stream& stream);
  void Forget(Stream& stream);
  void Fail(Stream& stream, const absl::Status& why);

  const ChunkClientOptions& options_;
  Executor& executor_;
  RequestTable& chunks_;
  ShardRoutes& routes_;
  Consistency mode_;
  std::map<std::optional<MessagePair>, Stream> streams_;  // nullopt: the collectives
  // The answer that each link is currently receiving.
  std::map<const LaneLink*, std::shared_ptr<HostBuffer>> receptions_;
  std::shared_ptr<ExchangeClient*> self_;  // expired for timers once this object is gone
};

}  // namespace pushpull
