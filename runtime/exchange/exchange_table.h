// SPDX-License-Identifier: Apache-2.0
//
// A server lane's half of the exchanges: collects the workers' contributions to each piece, reduces
// or concatenates them in worker order, and says whom to answer. A piece is complete when every
// member of the views that are known contributes to its step and has contributed
// (docs/protocol.md section 4). Its result is kept until every member has begun a later exchange
// here, or until the step is over by two. Pure: no time, no peers, no threads.
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
  // OK with a result; or why the exchange has failed for all workers.
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
  //   kUnavailable        the worker is not in the view of the step: it is to send it again
  //   kResourceExhausted  it has more than kExchangeBytesPerWorkerMax here; or the answer is too
  //                       large for a frame
  absl::Status Take(ExchangeContribution contribution,
                    ExchangeWaiter waiter,
                    const MembershipView& membership);

  // Completes the piece if that is possible. Returns the answers that are due.
  std::vector<ExchangeReply> Settle(const ExchangeKey& key,
                                    const MembershipView& membership,
                                    IsOpen is_open);
  std::vector<ExchangeReply> SettleAll(const MembershipView& membership, IsOpen is_open);

  // What workers have contributed that are no members any more does not count.
  void OnView(const MembershipView& membership);
  // Forgets the shard's pieces. Returns the requests that wait for them.
  std::vector<ExchangeWaiter> DropShard(ShardId shard);
  // Its requests are not answered.
  void DropConnection(const Connection& connection);
  // Forgets what no member can ask for any more: some chunk has this version.
  void OnVersion(Step version);

  // The highest step with an exchange that is complete: nobody may join with it or before. Empty:
  // none.
  std::optional<Step> highest_completed() const { return highest_completed_; }
  bool empty() const { return pieces_.empty(); }
  size_t num_pieces() const { return pieces_.size(); }
  // Kept for the worker, as kExchangeBytesPerWorkerMax counts.
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
    WorkerId first;  // whose spec it is
    std::map<WorkerId, Part> parts;
    std::map<WorkerId, ExchangeWaiter> waiters;
    std::shared_ptr<const ExchangeResult> result;
    absl::Status failure;

    bool is_over() const { return result != nullptr || !failure.ok(); }
  };
  // The newest exchange of a worker that is known here.
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
  // Every member that contributes to the step has begun a later exchange here.
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
