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

// Whether the exchange of values depends on who takes part: how large pieces may be, or whose
// values count.
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

// Copies the results of all pieces of an exchange whose results are as long as the array.
void Copy(const ExchangeOperation& done, std::span<std::byte> values) {
  for (uint32_t i = 0; i < done.results.size(); ++i) {
    const std::span<const std::byte> piece = done.results[i]->bytes();
    std::ranges::copy(piece, values.subspan(PieceOffset(done.spec, i)).begin());
  }
}

// The first error once all are done or `deadline` has passed; kDeadlineExceeded takes precedence.
absl::Status WaitForAll(const std::vector<std::shared_ptr<ExchangeOperation>>& operations,
                        Deadline deadline) {
  absl::Status status;
  for (const std::shared_ptr<ExchangeOperation>& operation : operations) {
    const absl::Status one = operation->pending.Wait(deadline);
    const bool is_first = status.ok() || absl::IsDeadlineExceeded(one);
    if (is_first && !absl::IsDeadlineExceeded(status)) status = one;
  }
  return status;
}

ReceivedMessage MessageOf(const ExchangeOperation& done, const ExpectedMessage& wanted) {
  ReceivedMessage message{.type = done.head->type, .bytes = {}, .label = done.head->label};
  if (!wanted.into) message.bytes.resize(done.head->bytes);
  Copy(done, wanted.into ? wanted.into->bytes : std::span(message.bytes));
  return message;
}

}  // namespace

void WorkerCollectives::UseStep(std::optional<Step> step) {
  MutexLock lock(mu_);
  step_ = step;
}

absl::StatusOr<WorkerCollectives::Call> WorkerCollectives::Enter(const std::vector<Part>& parts) {
  const ExchangeSpec& first = parts.front().spec;
  for (const Part& part : parts) PUSHPULL_RETURN_IF_ERROR(Check(part.spec));
  MutexLock lock(mu_);
  if (is_busy_) {
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(first), ": another thread's collective is under way: one at a time"));
  }
  const Step step = node_.exchange_step(step_);
  if (unfinished_) {
    const bool is_same = unfinished_->operations.front()->step == step &&
                         std::ranges::equal(
                             unfinished_->specs, parts, {}, {}, [
                             ](const Part& part) -> const auto& { return part.spec; });
    const auto under_way = std::ranges::find_if(
        unfinished_->operations, [](const Operation& one) { return !one->pending.is_done(); });
    if (!is_same && under_way != unfinished_->operations.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat(Describe(first),
                       ": ",
                       (*under_way)->pending.what(),
                       " is still under way: call that again and wait for it"));
    }
    std::optional<Call> call = std::exchange(unfinished_, std::nullopt);
    if (is_same) {
      is_busy_ = true;
      return *std::move(call);
    }
  }
  PUSHPULL_ASSIGN_OR_RETURN(Call call, Begin(parts, step));
  is_busy_ = true;
  return call;
}

absl::StatusOr<WorkerCollectives::Call> WorkerCollectives::Begin(const std::vector<Part>& parts,
                                                                 Step step) {
  Call call;
  for (const Part& part : parts) {
    PUSHPULL_ASSIGN_OR_RETURN(Operation operation,
                              node_.StartExchange(First(part.spec), part.values, step, part.label));
    call.specs.push_back(part.spec);
    call.operations.push_back(std::move(operation));
  }
  return call;
}

void WorkerCollectives::Exit(std::optional<Call> call) {
  MutexLock lock(mu_);
  is_busy_ = false;
  unfinished_ = std::move(call);
}

absl::StatusOr<WorkerCollectives::Operation> WorkerCollectives::Run(
    const ExchangeSpec& spec, std::span<const std::byte> values, Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(std::vector<Operation> done, Run({{spec, values}}, deadline));
  return std::move(done.front());
}

absl::StatusOr<std::vector<WorkerCollectives::Operation>> WorkerCollectives::Run(
    const std::vector<Part>& parts, Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(Call call, Enter(parts));
  while (true) {
    const absl::Status status = WaitForAll(call.operations, deadline);
    if (!status.ok()) {
      Exit(absl::IsDeadlineExceeded(status) ? std::optional<Call>(std::move(call)) : std::nullopt);
      return status;
    }
    Operation& only = call.operations.front();
    if (!only->spec.is_prelude) break;
    const Part& part = parts.front();
    absl::StatusOr<Operation> second =
        node_.StartExchange(Second(part.spec, only->workers), part.values, only->step);
    if (!second.ok()) {
      Exit(std::nullopt);
      return second.status();
    }
    only = *std::move(second);
  }
  Exit(std::nullopt);
  return std::move(call.operations);
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
  // Each piece has every worker's part, one after the other.
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

WorkerCollectives::Part WorkerCollectives::PartOf(const OutgoingMessage& message) const {
  return {.spec = {.op = ExchangeOp::kMessage,
                   .type = message.values.type,
                   .bytes = message.values.bytes.size(),
                   .pair = MessagePair{node_.worker(), message.to}},
          .values = message.values.bytes,
          .label = message.label};
}

WorkerCollectives::Part WorkerCollectives::PartOf(const ExpectedMessage& message) const {
  const ArrayValues into = message.into.value_or(ArrayValues{});
  return {.spec = {.op = ExchangeOp::kMessage,
                   .type = into.type,
                   .bytes = into.bytes.size(),
                   .pair = MessagePair{message.from, node_.worker()},
                   .takes_any = !message.into},
          .values = {}};
}

absl::Status WorkerCollectives::Send(const OutgoingMessage& message, Deadline deadline) {
  return Run({PartOf(message)}, deadline).status();
}

absl::StatusOr<ReceivedMessage> WorkerCollectives::Recv(const ExpectedMessage& message,
                                                        Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<Operation> done, Run({PartOf(message)}, deadline));
  return MessageOf(*done.front(), message);
}

absl::StatusOr<ReceivedMessage> WorkerCollectives::SendRecv(const OutgoingMessage& outgoing,
                                                            const ExpectedMessage& expected,
                                                            Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<Operation> done,
                            Run({PartOf(outgoing), PartOf(expected)}, deadline));
  return MessageOf(*done.back(), expected);
}

}  // namespace pushpull
