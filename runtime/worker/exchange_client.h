// SPDX-License-Identifier: Apache-2.0
//
// A worker's half of the exchanges (docs/decisions/0057-collectives-over-servers.md): cuts an array
// into pieces, sends each to the primary of its shard, and keeps everything until the exchange
// after it is done: only then all workers have the result, and nobody asks for it any more.
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
  ExchangeOperation(const ExchangeSpec& of, Step at, uint64_t program_step, HostBuffer values);

  const ExchangeSpec spec;
  const Step step;                                // as on the wire
  const std::shared_ptr<const HostBuffer> input;  // this worker's array; shared with frames
  PendingOperation pending;
  // Set when `pending` is done without an error.
  std::vector<WorkerId> workers;                           // who contributed, ascending
  std::vector<std::shared_ptr<const HostBuffer>> results;  // of each piece
};

// Thread-confined to its executor.
class ExchangeClient {
 public:
  // All references outlive this object.
  ExchangeClient(const ChunkClientOptions& options,
                 Executor& executor,
                 RequestTable& chunks,
                 ShardRoutes& routes);
  // Fails with kFailedPrecondition while another one is under way, or in a mode that has none.
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
    std::shared_ptr<const HostBuffer> result;  // null until it is answered
    std::vector<WorkerId> workers;             // of the result
    bool is_delivered = false;                 // the primary has nothing more to ask
    bool is_under_way = false;
    Epoch epoch;  // under which it was sent
    SteadyTime sent = {};
  };
  struct Exchange {
    std::shared_ptr<ExchangeOperation> operation;
    ExchangeId id;
    std::vector<Piece> pieces;
  };

  ShardId ShardOf(size_t piece);
  ChunkId ChunkOf(size_t piece);
  Exchange* Find(ExchangeId id);
  void Begin(std::shared_ptr<ExchangeOperation> operation);
  // Sends what may be sent now.
  void SendDue();
  void Send(Exchange& exchange, size_t index);
  // Sends the pieces again for which `is_due`.
  void SendAgain(const std::function<bool(size_t index, const Piece&)>& is_due);
  void SendLater(ExchangeKey key);
  void FinishIfComplete();
  void Fail(const absl::Status& why);

  const ChunkClientOptions& options_;
  Executor& executor_;
  RequestTable& chunks_;
  ShardRoutes& routes_;
  Consistency mode_;
  std::optional<Exchange> current_;
  std::optional<Exchange> kept_;  // the one before
  ExchangeId next_;
  // The answer that each link is receiving.
  std::map<const LaneLink*, std::shared_ptr<HostBuffer>> receptions_;
  std::shared_ptr<ExchangeClient*> self_;  // expired for timers once this object is gone
};

}  // namespace pushpull
