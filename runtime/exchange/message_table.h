// SPDX-License-Identifier: Apache-2.0
//
// A server lane's half of the messages between two workers
// (docs/decisions/0058-messages-over-servers.md): brings each piece that the sender contributes to
// the receiver that asks for it, keeps it until the receiver's receipt, and only then answers the
// sender. A received piece is kept without its values to answer repeated requests, until both
// workers have begun a later message here, or until the following step is over. Pure: no time, no
// peers, no threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "runtime/base/ids.h"
#include "runtime/consistency/membership_view.h"
#include "runtime/exchange/exchange.h"
#include "runtime/exchange/exchange_frame.h"
#include "runtime/exchange/exchange_request.h"
#include "runtime/exchange/worker_charges.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// A piece as contributed by its sender; never changes.
struct SentPiece {
  MessageHead head;
  HostBuffer values;
};

struct MessageReply {
  ExchangeWaiter to;
  // OK, or why the message has failed for both workers.
  absl::Status status;
  // For the receiver. Null with an OK status: the receiver has the piece.
  std::shared_ptr<const SentPiece> piece;
};

// Thread-compatible.
class MessageTable {
 public:
  // Whether the pieces of a shard may be answered now.
  using IsOpen = absl::FunctionRef<bool(ShardId)>;

  // Takes what one of the key's two workers sends, whose length fits its spec: the values, a
  // request for them, a receipt, or a repetition of one of these. The waiter replaces an earlier
  // one of the worker.
  //
  //   kInvalidArgument    this worker cannot send such a request
  //   kUnavailable        the worker is not in the view of the step: it must send it again
  //   kNotFound           an earlier process of the worker has received the piece
  //   kResourceExhausted  the worker has more than kExchangeBytesPerWorkerMax here
  absl::Status Take(ExchangeContribution contribution,
                    ExchangeWaiter waiter,
                    const MembershipView& membership);

  // Returns the answers due for the piece, and for earlier messages of its workers.
  std::vector<MessageReply> Settle(const ExchangeKey& key,
                                   const MembershipView& membership,
                                   IsOpen is_open);
  std::vector<MessageReply> SettleAll(const MembershipView& membership, IsOpen is_open);

  // Drops what workers that are no longer members have sent.
  void OnView(const MembershipView& membership);
  // Forgets the shard's pieces. Returns the requests that wait for them.
  std::vector<ExchangeWaiter> DropShard(ShardId shard);
  // The connection's requests are not answered.
  void DropConnection(const Connection& connection);
  // Some chunk has this version: forgets what no worker can ask for any more.
  void OnVersion(Step version);

  // The highest step with a message that was received or has failed, and whose workers continue
  // with the next one: nobody may join at or before it, starting with the first message. Empty:
  // none.
  std::optional<Step> highest_ended() const { return highest_ended_; }
  bool empty() const { return pieces_.empty(); }
  size_t num_pieces() const { return pieces_.size(); }
  // Bytes kept for the worker, as limited by kExchangeBytesPerWorkerMax.
  uint64_t BytesOf(WorkerId worker) const { return charges_.BytesOf(worker); }

 private:
  // One of the two workers of a piece.
  struct Side {
    Incarnation incarnation;
    ExchangeSpec spec;
    uint64_t charged = 0;
    std::optional<ExchangeWaiter> waiter;
  };
  struct Piece {
    ShardId shard;
    std::optional<Side> sender;
    std::optional<Side> receiver;
    std::shared_ptr<const SentPiece> sent;  // until the piece is over
    bool is_received = false;
    absl::Status failure;

    bool is_over() const { return is_received || !failure.ok(); }
  };
  // Keeps the pieces of a pair together, in the order of its messages.
  struct PairFirst {
    bool operator()(const ExchangeKey& a, const ExchangeKey& b) const {
      return a.pair == b.pair ? a < b : a.pair < b.pair;
    }
  };
  using Pieces = std::map<ExchangeKey, Piece, PairFirst>;
  // The newest message of one of its workers that is known here.
  struct Progress {
    Incarnation incarnation;
    ExchangeId exchange;
  };
  struct PairProgress {
    std::optional<Progress> sender;
    std::optional<Progress> receiver;
  };

  absl::Status Check(const ExchangeContribution& contribution,
                     const MembershipView& membership) const;
  void AddSide(Piece& piece, ExchangeContribution contribution, ExchangeWaiter waiter);
  void Advance(const ExchangeKey& key, WorkerId worker, Incarnation incarnation);
  // Why a piece cannot be received any more; OK: it can.
  absl::Status Judge(const ExchangeKey& key,
                     const Piece& piece,
                     const MembershipView& membership) const;
  void SettlePiece(const ExchangeKey& key,
                   Piece& piece,
                   const MembershipView& membership,
                   std::vector<MessageReply>& replies);
  // The piece has just ended.
  void End(const ExchangeKey& key, Piece& piece);
  // The piece is over, or its sender is gone.
  void DropValues(const MessagePair& pair, Piece& piece);
  void DropSide(WorkerId worker, std::optional<Side>& side);
  Pieces::iterator Erase(Pieces::iterator piece);

  Pieces pieces_;
  std::map<MessagePair, PairProgress> progress_;
  WorkerCharges charges_;
  std::optional<Step> highest_ended_;
};

}  // namespace pushpull
