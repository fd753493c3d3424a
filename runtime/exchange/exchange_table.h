// SPDX-License-Identifier: Apache-2.0
//
// A server lane's half of the exchanges: collects the workers' contributions to each piece, reduces
// or concatenates them in worker order, and returns the answers. A piece is complete when every
// member that contributes to its step, in the known views, has contributed (docs/protocol.md
// section 4). Its result is kept until every member has begun a later exchange here, or until the
// following step is over. Pure: no time, no peers, no threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "runtime/base/ids.h"
#include "runtime/consistency/membership_view.h"
#include "runtime/exchange/exchange.h"
#include "runtime/exchange/exchange_request.h"
#include "runtime/exchange/worker_charges.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// The values of a piece that its workers have agreed on; never changes.
struct ExchangeResult {
  std::vector<WorkerId> workers;  // who contributed, ascending
  HostBuffer values;
};

struct ExchangeReply {
  ExchangeWaiter to;
  // OK with a result, or why the exchange has failed for all workers.
  absl::Status status;
  std::shared_ptr<const ExchangeResult> result;
};

// Thread-compatible.
class ExchangeTable {
 public:
  // Whether the pieces of a shard may be completed and answered now.
  using IsOpen = absl::FunctionRef<bool(ShardId)>;

  // Takes a contribution whose length fits its spec, or a repeated one, whose values are dropped.
  // The waiter replaces an earlier one of the worker.
  //
  //   kUnavailable        the worker is not in the view of the step: it must send it again
  //   kResourceExhausted  the worker has more than kExchangeBytesPerWorkerMax here, or the answer
  //                       is too large for a frame
  absl::Status Take(ExchangeContribution contribution,
                    ExchangeWaiter waiter,
                    const MembershipView& membership);

  // Completes the piece if that is possible. Returns the answers that are due.
  std::vector<ExchangeReply> Settle(const ExchangeKey& key,
                                    const MembershipView& membership,
                                    IsOpen is_open);
  std::vector<ExchangeReply> SettleAll(const MembershipView& membership, IsOpen is_open);

  // Contributions of workers that are no longer members stop counting.
  void OnView(const MembershipView& membership);
  // Forgets the shard's pieces. Returns the requests that wait for them.
  std::vector<ExchangeWaiter> DropShard(ShardId shard);
  // The connection's requests are not answered.
  void DropConnection(const Connection& connection);
  // Some chunk has this version: forgets what no member can ask for any more.
  void OnVersion(Step version);

  // The highest step with a complete exchange: nobody may join at or before it. Empty: none.
  std::optional<Step> highest_completed() const { return highest_completed_; }
  bool empty() const { return pieces_.empty(); }
  size_t num_pieces() const { return pieces_.size(); }
  // Bytes kept for the worker, as limited by kExchangeBytesPerWorkerMax.
  uint64_t BytesOf(WorkerId worker) const { return charges_.BytesOf(worker); }

 private:
  struct Part {
    Incarnation incarnation;
    HostBuffer values;
    uint64_t charged = 0;
  };
  struct Piece {
    ShardId shard;
    ExchangeSpec spec;
    WorkerId first;  // whose spec this is
    std::map<WorkerId, Part> parts;
    std::map<WorkerId, ExchangeWaiter> waiters;
    std::shared_ptr<const ExchangeResult> result;
    absl::Status failure;

    bool is_over() const { return result != nullptr || !failure.ok(); }
  };
  // A worker's newest exchange known here.
  struct Progress {
    Incarnation incarnation;
    ExchangeId exchange;
  };
  using Pieces = std::map<ExchangeKey, Piece>;

  void AddPart(Piece& piece, ExchangeContribution contribution, uint64_t charged);
  void Advance(WorkerId worker,
               Incarnation incarnation,
               ExchangeId exchange,
               const MembershipView& membership);
  // Whether every member that contributes to the step has begun a later exchange here.
  bool IsPassed(ExchangeId exchange, const MembershipView& membership) const;
  static bool IsComplete(const ExchangeKey& key,
                         const Piece& piece,
                         const MembershipView& membership);
  void Complete(const ExchangeKey& key, Piece& piece);
  Pieces::iterator Erase(Pieces::iterator piece);

  Pieces pieces_;
  std::map<WorkerId, Progress> progress_;
  WorkerCharges charges_;
  std::optional<Step> highest_completed_;
};

}  // namespace pushpull
