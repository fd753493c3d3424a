// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/worker_collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/replication/worker_bits.h"

namespace pushpull {
namespace {

// The values' exchange depends on who takes part: how large pieces may be, or whose values count.
bool NeedsPrelude(const ExchangeSpec& spec) {
  const bool has_no_root = spec.op == ExchangeOp::kBroadcast && !spec.root;
  return has_no_root ||
         (spec.op == ExchangeOp::kAllGather && spec.bytes > GatherPieceBytes(kWorkersMax));
}

ExchangeSpec First(const ExchangeSpec& spec) {
  ExchangeSpec first = spec;
  first.is_prelude = NeedsPrelude(spec);
  if (spec.op == ExchangeOp::kAllGather) first.piece_bytes = GatherPieceBytes(kWorkersMax);
  return first;
}

ExchangeSpec Second(const ExchangeSpec& spec, const std::vector<WorkerId>& workers) {
  ExchangeSpec second = spec;
  if (spec.op == ExchangeOp::kAllGather) second.piece_bytes = GatherPieceBytes(workers.size());
  if (spec.op == ExchangeOp::kBroadcast && !spec.root) second.root = workers.front();
  return second;
}

// The results of all pieces of an exchange whose results are as long as the array.
void Copy(const ExchangeOperation& done, std::span<std::byte> values) {
  for (uint32_t i = 0; i < done.results.size(); ++i) {
    const std::span<const std::byte> piece = done.results[i]->bytes();
    std::ranges::copy(piece, values.subspan(PieceOffset(done.spec, i)).begin());
  }
}

}  // namespace

void WorkerCollectives::UseStep(std::optional<Step> step) {
  MutexLock lock(mu_);
  step_ = step;
}

absl::StatusOr<WorkerCollectives::Call> WorkerCollectives::Enter(
    const ExchangeSpec& spec, std::span<const std::byte> values) {
  MutexLock lock(mu_);
  if (is_busy_) {
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(spec), ": another thread's collective is under way: one at a time"));
  }
  const Step step = node_.exchange_step(step_);
  if (unfinished_) {
    const bool is_same = unfinished_->spec == spec && unfinished_->operation->step == step;
    if (!is_same && !unfinished_->operation->pending.is_done()) {
      return absl::FailedPreconditionError(
          absl::StrCat(Describe(spec),
                       ": ",
                       unfinished_->operation->pending.what(),
                       " is still under way: call that again and wait for it"));
    }
    std::optional<Call> call = std::exchange(unfinished_, std::nullopt);
    if (is_same) {
      is_busy_ = true;
      return *std::move(call);
    }
  }
  Call call{.spec = spec, .operation = nullptr};
  PUSHPULL_ASSIGN_OR_RETURN(call.operation, node_.StartExchange(First(spec), values, step));
  is_busy_ = true;
  return call;
}

void WorkerCollectives::Exit(std::optional<Call> call) {
  MutexLock lock(mu_);
  is_busy_ = false;
  unfinished_ = std::move(call);
}

absl::StatusOr<WorkerCollectives::Operation> WorkerCollectives::Run(
    const ExchangeSpec& spec, std::span<const std::byte> values, Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(Call call, Enter(spec, values));
  while (true) {
    const absl::Status status = call.operation->pending.Wait(deadline);
    if (!status.ok()) {
      Exit(absl::IsDeadlineExceeded(status) ? std::optional<Call>(std::move(call)) : std::nullopt);
      return status;
    }
    if (!call.operation->spec.is_prelude) break;
    absl::StatusOr<Operation> second =
        node_.StartExchange(Second(spec, call.operation->workers), values, call.operation->step);
    if (!second.ok()) {
      Exit(std::nullopt);
      return second.status();
    }
    call.operation = *std::move(second);
  }
  Exit(std::nullopt);
  return std::move(call.operation);
}

absl::StatusOr<std::vector<WorkerId>> WorkerCollectives::Barrier(Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(const Operation done, Run({.op = ExchangeOp::kBarrier}, {}, deadline));
  return done->workers;
}

absl::StatusOr<std::vector<WorkerId>> WorkerCollectives::AllReduce(ArrayValues values,
                                                                   Reduction reduction,
                                                                   Deadline deadline) {
  const ExchangeSpec spec{.op = ExchangeOp::kAllReduce,
                          .type = values.type,
                          .reduction = reduction,
                          .bytes = values.bytes.size()};
  PUSHPULL_ASSIGN_OR_RETURN(const Operation done, Run(spec, values.bytes, deadline));
  Copy(*done, values.bytes);
  return done->workers;
}

absl::StatusOr<GatheredValues> WorkerCollectives::AllGather(ConstArrayValues values,
                                                            Deadline deadline) {
  const ExchangeSpec spec{
      .op = ExchangeOp::kAllGather, .type = values.type, .bytes = values.bytes.size()};
  PUSHPULL_ASSIGN_OR_RETURN(const Operation done, Run(spec, values.bytes, deadline));
  GatheredValues all{.workers = done->workers, .bytes = {}};
  all.bytes.resize(values.bytes.size() * all.workers.size());
  // Each piece has the part of every worker, one after the other.
  for (uint32_t i = 0; i < done->results.size(); ++i) {
    const size_t bytes = PieceBytes(done->spec, i);
    for (size_t worker = 0; bytes > 0 && worker < all.workers.size(); ++worker) {
      std::memcpy(all.bytes.data() + worker * values.bytes.size() + PieceOffset(done->spec, i),
                  done->results[i]->bytes().data() + worker * bytes,
                  bytes);
    }
  }
  return all;
}

absl::StatusOr<std::vector<WorkerId>> WorkerCollectives::Broadcast(ArrayValues values,
                                                                   std::optional<WorkerId> root,
                                                                   Deadline deadline) {
  const ExchangeSpec spec{.op = ExchangeOp::kBroadcast,
                          .type = values.type,
                          .bytes = values.bytes.size(),
                          .root = root};
  PUSHPULL_ASSIGN_OR_RETURN(const Operation done, Run(spec, values.bytes, deadline));
  const WorkerId sender = *done->spec.root;
  if (!std::ranges::binary_search(done->workers, sender)) {
    return absl::NotFoundError(absl::StrCat(done->pending.what(),
                                            ": ",
                                            ToString(sender),
                                            " is not among the workers of this step: it has left, "
                                            "or has not joined yet"));
  }
  Copy(*done, values.bytes);
  return done->workers;
}

}  // namespace pushpull
