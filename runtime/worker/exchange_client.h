// SPDX-License-Identifier: Apache-2.0
//
// A worker's half of the exchanges (docs/decisions/0057-collectives-over-servers.md): cuts an array
// into pieces, sends each to the primary of its shard, and keeps everything until the exchange
// after it is done: only then all workers have the result, and nobody asks for it any more.
//
// A message (docs/decisions/0058-messages-over-servers.md) is an exchange of its own stream, that
// of its pair. Its sender is done when the receiver has everything, and keeps nothing; the receiver
// keeps that it has it until the next message of the pair.
//
// After every change of a shard's entry and every reconnect the pieces are sent again: those that
// are answered as results, so that a worker whose answer was lost receives the same one from the
// next primary.
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

// One exchange as the program waits for it.
struct ExchangeOperation {
  ExchangeOperation(const ExchangeSpec& of,
                    Step at,
                    uint64_t program_step,
                    HostBuffer values,
                    std::string label_of = "");

  const ExchangeSpec spec;
  const Step step;                                // as on the wire
  const std::shared_ptr<const HostBuffer> input;  // this worker's array; shared with frames
  const std::string label;                        // of a message to another worker
  PendingOperation pending;
  // Set when `pending` is done without an error.
  std::vector<WorkerId> workers;                           // who contributed, ascending
  std::vector<std::shared_ptr<const HostBuffer>> results;  // of each piece
  std::optional<MessageHead> head;                         // of a message that is received
};

// Thread-confined to its executor.
class ExchangeClient {
 public:
  // All references outlive this object.
  ExchangeClient(const ChunkClientOptions& options,
                 Executor& executor,
                 RequestTable& chunks,
                 ShardRoutes& routes);
  // Fails with kFailedPrecondition while another one of its stream is under way, or in a mode that
  // has none.
  void Start(std::shared_ptr<ExchangeOperation> operation);
  // How steps are agreed on from now on.
  void UseMode(const Consistency& mode);
  void FailAll(const absl::Status& why);

  // Where an answer is received; empty: it is not wanted.
  std::span<std::byte> PlacePayload(const LaneLink& link, const FrameHeader& header);
  // A kExchanged. Returns an entry that is new here, for all who use routes.
  std::optional<ShardEntry> OnFrame(const LaneLink& link, const ReceivedFrame& frame);

  // Entries may have changed.
  void OnEntries();
  void OnLinkUp(const LaneLink& link);
  // Sends again what went over a channel that may lose frames and is not answered.
  void ResendLost();

 private:
  struct Piece {
    // Null until it is answered; of a message, without values where this worker does not need them.
    std::shared_ptr<const HostBuffer> result;
    std::vector<WorkerId> workers;  // of the result
    bool is_delivered = false;      // the primary has nothing more to ask
    bool is_under_way = false;
    Epoch epoch;  // under which it was sent
    SteadyTime sent = {};
  };
  struct Exchange {
    std::shared_ptr<ExchangeOperation> operation;
    ExchangeId id;
    ExchangeSpec spec;  // the operation's, or what the receiver of a message has learned
    std::vector<Piece> pieces;
  };
  // Exchanges that follow each other: the collectives, or the messages of one pair.
  struct Stream {
    std::optional<Exchange> current;
    std::optional<Exchange> kept;  // the one before
    ExchangeId next;
  };

  bool Receives(const ExchangeSpec& spec) const {
    return spec.pair && spec.pair->to == options_.hello.worker;
  }
  ShardId ShardOf(const Exchange& exchange, size_t piece);
  ChunkId ChunkOf(const Exchange& exchange, size_t piece);
  Exchange* Find(const ExchangeKey& key);
  void Begin(std::shared_ptr<ExchangeOperation> operation);
  // Sends what may be sent now.
  void SendDue();
  void SendDue(Stream& stream);
  void Send(Exchange& exchange, size_t index);
  // Sends the pieces again for which `is_due`.
  void SendAgain(const std::function<bool(ShardId shard, const Piece&)>& is_due);
  void SendLater(const ExchangeKey& key);
  // Returns an entry that is new here.
  std::optional<ShardEntry> OnRejected(const LaneLink& link,
                                       const ExchangeKey& key,
                                       ExchangeAnswer answer);
  // The answer has what was asked for; with a null `result`: that the piece is taken. False: it is
  // to be sent again.
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
  std::map<std::optional<MessagePair>, Stream> streams_;  // none: that of the collectives
  // The answer that each link is receiving.
  std::map<const LaneLink*, std::shared_ptr<HostBuffer>> receptions_;
  std::shared_ptr<ExchangeClient*> self_;  // expired for timers once this object is gone
};

}  // namespace pushpull
