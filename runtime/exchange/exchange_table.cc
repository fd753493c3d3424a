// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/exchange_table.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/tensor/element_reduce.h"
#include "runtime/tensor/reduction.h"

namespace pushpull {
namespace {

// The cost of a piece besides its values, so that pieces without values are bounded too.
constexpr uint64_t kOverheadBytes = 1024;

ElementKind KindOf(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
      return ElementKind::kUint8;
    case ElementType::kInt32:
      return ElementKind::kInt32;
    case ElementType::kInt64:
      return ElementKind::kInt64;
    case ElementType::kFloat16:
      return ElementKind::kFloat16;
    case ElementType::kBFloat16:
      return ElementKind::kBFloat16;
    case ElementType::kFloat32:
      return ElementKind::kFloat32;
    case ElementType::kFloat64:
      break;
  }
  return ElementKind::kFloat64;
}

std::string NameOf(const ExchangeKey& key) {
  return absl::StrCat("exchange ", key.exchange.sequence, " of step ", key.exchange.step.value());
}

// The error when two workers call different collectives.
absl::Status Mismatch(const ExchangeKey& key,
                      WorkerId a,
                      const ExchangeSpec& of_a,
                      WorkerId b,
                      const ExchangeSpec& of_b) {
  return absl::InvalidArgumentError(
      absl::StrCat(NameOf(key),
                   ": ",
                   ToString(a),
                   " calls ",
                   Describe(of_a),
                   ", ",
                   ToString(b),
                   " calls ",
                   Describe(of_b),
                   ": all workers make the same calls in the same order"));
}

}  // namespace

absl::Status ExchangeTable::Take(ExchangeContribution contribution,
                                 ExchangeWaiter waiter,
                                 const MembershipView& membership) {
  const ExchangeKey key = contribution.key;
  const WorkerId worker = contribution.worker;
  if (!membership.IsMember(worker, contribution.incarnation, key.exchange.step)) {
    return absl::UnavailableError(
        absl::StrCat(NameOf(key), ": ", ToString(worker), " is not in the view of that step yet"));
  }
  const auto known = progress_.find(worker);
  const bool is_late = known != progress_.end() &&
                       known->second.incarnation == contribution.incarnation &&
                       key.exchange < known->second.exchange;
  auto found = pieces_.find(key);
  // A long-delayed copy: the worker already has the result.
  if (found == pieces_.end() && is_late && !contribution.result_of) return absl::OkStatus();
  const uint64_t charged = contribution.values.num_bytes() + kOverheadBytes;
  PUSHPULL_RETURN_IF_ERROR(charges_.CheckRoom(NameOf(key), worker, charged));
  if (found == pieces_.end()) {
    found = pieces_.try_emplace(key).first;
    found->second.shard = contribution.shard;
    found->second.spec = contribution.spec;
    found->second.first = worker;
  }
  Piece& piece = found->second;
  if (piece.failure.ok() && piece.spec != contribution.spec)
    piece.failure = Mismatch(key, piece.first, piece.spec, worker, contribution.spec);
  piece.waiters.insert_or_assign(worker, waiter);
  const Incarnation incarnation = contribution.incarnation;
  if (contribution.result_of && !piece.is_over()) {
    piece.result = std::make_shared<const ExchangeResult>(
        ExchangeResult{*std::move(contribution.result_of), std::move(contribution.values)});
    contribution.values = HostBuffer();
    highest_completed_ = std::max(highest_completed_.value_or(Step{}), key.exchange.step);
  }
  AddPart(piece, std::move(contribution), charged);
  Advance(worker, incarnation, key.exchange, membership);
  return absl::OkStatus();
}

void ExchangeTable::AddPart(Piece& piece, ExchangeContribution contribution, uint64_t charged) {
  const auto it = piece.parts.find(contribution.worker);
  if (it != piece.parts.end()) {
    if (it->second.incarnation == contribution.incarnation) return;
    charges_.Remove(it->first, it->second.charged);
    piece.parts.erase(it);
  }
  // A piece that is over needs no values.
  if (piece.is_over()) contribution.values = HostBuffer();
  charges_.Add(contribution.worker, charged);
  piece.parts.emplace(contribution.worker,
                      Part{contribution.incarnation, std::move(contribution.values), charged});
}

// A worker begins an exchange once it has the results of all previous ones.
void ExchangeTable::Advance(WorkerId worker,
                            Incarnation incarnation,
                            ExchangeId exchange,
                            const MembershipView& membership) {
  Progress& progress = progress_[worker];
  const bool is_new = progress.incarnation != incarnation || progress.exchange < exchange;
  if (!is_new) return;
  progress = {incarnation, exchange};
  for (auto it = pieces_.begin(); it != pieces_.end() && it->first.exchange < exchange;) {
    Piece& piece = it->second;
    if (!piece.is_over()) {
      const auto part = piece.parts.find(worker);
      if (part != piece.parts.end()) {
        charges_.Remove(worker, part->second.charged);
        piece.parts.erase(part);
      }
      piece.waiters.erase(worker);
    }
    const bool is_done =
        piece.is_over() ? IsPassed(it->first.exchange, membership) : piece.parts.empty();
    it = is_done ? Erase(it) : std::next(it);
  }
}

bool ExchangeTable::IsPassed(ExchangeId exchange, const MembershipView& membership) const {
  bool is_passed = true;
  membership.ForEachRequired(exchange.step, [&](WorkerId worker) {
    const auto it = progress_.find(worker);
    is_passed = is_passed && it != progress_.end() && exchange < it->second.exchange;
  });
  return is_passed;
}

bool ExchangeTable::IsComplete(const ExchangeKey& key,
                               const Piece& piece,
                               const MembershipView& membership) {
  bool is_complete = !piece.parts.empty();
  membership.ForEachRequired(key.exchange.step, [&](WorkerId worker) {
    is_complete = is_complete && piece.parts.contains(worker);
  });
  return is_complete;
}

void ExchangeTable::Complete(const ExchangeKey& key, Piece& piece) {
  const ExchangeSpec& spec = piece.spec;
  ExchangeResult result;
  for (const auto& [worker, part] : piece.parts) result.workers.push_back(worker);
  if (spec.op == ExchangeOp::kAllGather && PieceBytes(spec, key.piece) > 0) {
    const uint64_t num_bytes = PieceBytes(spec, key.piece) * piece.parts.size();
    absl::StatusOr<HostBuffer> all =
        num_bytes <= kExchangeAnswerBytesMax
            ? HostBuffer::Uninitialized(num_bytes)
            : absl::ResourceExhaustedError(absl::StrCat(
                  num_bytes, " bytes for an answer, at most ", kExchangeAnswerBytesMax));
    if (!all.ok()) {
      piece.failure = absl::Status(all.status().code(),
                                   absl::StrCat(NameOf(key), ": ", all.status().message()));
      return;
    }
    auto to = all->bytes().begin();
    for (const auto& [worker, part] : piece.parts)
      to = std::ranges::copy(part.values.bytes(), to).out;
    result.values = *std::move(all);
  } else if (spec.op == ExchangeOp::kBroadcast) {
    const auto root = spec.root ? piece.parts.find(*spec.root) : piece.parts.end();
    if (root != piece.parts.end()) result.values = std::move(root->second.values);
  } else {
    // In the order of the workers' indices: the same bits whatever the order of arrival.
    auto part = piece.parts.begin();
    result.values = std::move(part->second.values);
    std::vector<std::span<const std::byte>> others;
    for (++part; part != piece.parts.end(); ++part) others.push_back(part->second.values.bytes());
    ReduceAll(KindOf(spec.type), OpOf(spec.reduction), result.values.bytes(), others);
  }
  for (auto& [worker, part] : piece.parts) part.values = HostBuffer();
  piece.result = std::make_shared<const ExchangeResult>(std::move(result));
  highest_completed_ = std::max(highest_completed_.value_or(Step{}), key.exchange.step);
}

std::vector<ExchangeReply> ExchangeTable::Settle(const ExchangeKey& key,
                                                 const MembershipView& membership,
                                                 IsOpen is_open) {
  std::vector<ExchangeReply> replies;
  const auto it = pieces_.find(key);
  if (it == pieces_.end() || !is_open(it->second.shard)) return replies;
  Piece& piece = it->second;
  if (!piece.is_over() && IsComplete(key, piece, membership)) Complete(key, piece);
  if (!piece.is_over()) return replies;
  for (const auto& [worker, waiter] : std::exchange(piece.waiters, {}))
    replies.push_back({waiter, piece.failure, piece.result});
  return replies;
}

std::vector<ExchangeReply> ExchangeTable::SettleAll(const MembershipView& membership,
                                                    IsOpen is_open) {
  std::vector<ExchangeReply> replies;
  for (const auto& [key, piece] : pieces_) {
    for (ExchangeReply& reply : Settle(key, membership, is_open))
      replies.push_back(std::move(reply));
  }
  return replies;
}

void ExchangeTable::OnView(const MembershipView& membership) {
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    Piece& piece = it->second;
    for (auto part = piece.parts.begin(); part != piece.parts.end();) {
      const bool is_member =
          membership.IsMember(part->first, part->second.incarnation, it->first.exchange.step);
      if (!is_member) {
        charges_.Remove(part->first, part->second.charged);
        piece.waiters.erase(part->first);
      }
      part = is_member ? std::next(part) : piece.parts.erase(part);
    }
    // If nobody is left who has seen a result, the job may repeat the step.
    it = piece.parts.empty() ? Erase(it) : std::next(it);
  }
  std::erase_if(progress_, [&](const auto& entry) {
    const Progress& progress = entry.second;
    return !membership.IsMember(entry.first, progress.incarnation, progress.exchange.step);
  });
}

std::vector<ExchangeWaiter> ExchangeTable::DropShard(ShardId shard) {
  std::vector<ExchangeWaiter> dropped;
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    if (it->second.shard != shard) {
      ++it;
      continue;
    }
    for (const auto& [worker, waiter] : it->second.waiters) dropped.push_back(waiter);
    it = Erase(it);
  }
  return dropped;
}

void ExchangeTable::DropConnection(const Connection& connection) {
  for (auto& [key, piece] : pieces_) {
    std::erase_if(piece.waiters,
                  [&](const auto& entry) { return entry.second.connection == &connection; });
  }
}

void ExchangeTable::OnVersion(Step version) {
  while (!pieces_.empty() && pieces_.begin()->first.exchange.step.value() + 2 <= version.value())
    Erase(pieces_.begin());
}

ExchangeTable::Pieces::iterator ExchangeTable::Erase(Pieces::iterator piece) {
  for (const auto& [worker, part] : piece->second.parts) charges_.Remove(worker, part.charged);
  return pieces_.erase(piece);
}

}  // namespace pushpull
