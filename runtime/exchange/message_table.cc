// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/message_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// The cost of a piece besides its values, so that pieces without values are bounded too.
constexpr uint64_t kMessageOverheadBytes = 512;

std::string MessageName(const ExchangeKey& key) {
  return absl::StrCat("message ",
                      key.exchange.sequence,
                      " of step ",
                      key.exchange.step.value(),
                      " from ",
                      ToString(key.pair->from),
                      " to ",
                      ToString(key.pair->to));
}

std::string ValuesText(const ExchangeSpec& spec) {
  return absl::StrCat(spec.bytes / ElementBytes(spec.type), " ", ToString(spec.type), " values");
}

bool IsRequired(WorkerId worker, Step step, const MembershipView& membership) {
  bool is_required = false;
  membership.ForEachRequired(
      step, [&](WorkerId required) { is_required = is_required || required == worker; });
  return is_required;
}

}  // namespace

absl::Status MessageTable::Check(const ExchangeContribution& contribution,
                                 const MembershipView& membership) const {
  const ExchangeKey& key = contribution.key;
  const WorkerId worker = contribution.worker;
  const bool is_sender = worker == key.pair->from;
  const bool asks = contribution.spec.takes_any || contribution.result_of;
  if ((!is_sender && worker != key.pair->to) || (is_sender && asks)) {
    return absl::InvalidArgumentError(
        absl::StrCat(MessageName(key), ": ", ToString(worker), " does not receive it"));
  }
  if (!membership.IsMember(worker, contribution.incarnation, key.exchange.step)) {
    return absl::UnavailableError(absl::StrCat(
        MessageName(key), ": ", ToString(worker), " is not in the view of that step yet"));
  }
  const uint64_t charged = contribution.values.num_bytes() + kMessageOverheadBytes;
  PUSHPULL_RETURN_IF_ERROR(charges_.CheckRoom(MessageName(key), worker, charged));
  const auto found = pieces_.find(key);
  if (found == pieces_.end() || !found->second.is_over()) return absl::OkStatus();
  const std::optional<Side>& known = is_sender ? found->second.sender : found->second.receiver;
  if (!known || known->incarnation == contribution.incarnation) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      MessageName(key), ": an earlier process of ", ToString(worker), " took part in it"));
}

absl::Status MessageTable::Take(ExchangeContribution contribution,
                                ExchangeWaiter waiter,
                                const MembershipView& membership) {
  PUSHPULL_RETURN_IF_ERROR(Check(contribution, membership));
  const ExchangeKey key = contribution.key;
  const WorkerId worker = contribution.worker;
  const Incarnation incarnation = contribution.incarnation;
  const bool is_receipt = contribution.result_of.has_value();
  auto found = pieces_.find(key);
  if (found == pieces_.end()) {
    const auto pair = progress_.find(*key.pair);
    const std::optional<Progress> known = pair == progress_.end()    ? std::nullopt
                                          : worker == key.pair->from ? pair->second.sender
                                                                     : pair->second.receiver;
    // A long-delayed copy: the worker is done with it.
    const bool is_late =
        known && known->incarnation == incarnation && key.exchange < known->exchange;
    if (is_late && !is_receipt) return absl::OkStatus();
    found = pieces_.try_emplace(key).first;
    found->second.shard = contribution.shard;
  }
  Piece& piece = found->second;
  AddSide(piece, std::move(contribution), std::move(waiter));
  if (is_receipt && !piece.is_received) {
    // The piece has failed since then, but it did reach the receiver.
    piece.is_received = true;
    piece.failure = absl::OkStatus();
    End(key, piece);
  }
  Advance(key, worker, incarnation);
  return absl::OkStatus();
}

void MessageTable::AddSide(Piece& piece, ExchangeContribution contribution, ExchangeWaiter waiter) {
  const MessagePair& pair = *contribution.key.pair;
  const bool is_sender = contribution.worker == pair.from;
  std::optional<Side>& side = is_sender ? piece.sender : piece.receiver;
  if (side && side->incarnation != contribution.incarnation) {
    if (is_sender) DropValues(pair, piece);
    DropSide(contribution.worker, side);
  }
  if (!side) {
    side = Side{.incarnation = contribution.incarnation,
                .spec = contribution.spec,
                .charged = kMessageOverheadBytes,
                .waiter = {}};
    charges_.Add(contribution.worker, kMessageOverheadBytes);
  }
  side->waiter = std::move(waiter);
  if (!is_sender || piece.is_over() || piece.sent != nullptr) return;
  const uint64_t bytes = contribution.values.num_bytes();
  side->charged += bytes;
  charges_.Add(contribution.worker, bytes);
  piece.sent =
      std::make_shared<const SentPiece>(SentPiece{.head = {.type = contribution.spec.type,
                                                           .bytes = contribution.spec.bytes,
                                                           .sender = contribution.incarnation,
                                                           .label = std::move(contribution.label)},
                                                  .values = std::move(contribution.values)});
}

// A worker begins a message once it is done with all previous ones.
void MessageTable::Advance(const ExchangeKey& key, WorkerId worker, Incarnation incarnation) {
  PairProgress& progress = progress_[*key.pair];
  const bool is_sender = worker == key.pair->from;
  std::optional<Progress>& own = is_sender ? progress.sender : progress.receiver;
  if (own && own->incarnation == incarnation && key.exchange <= own->exchange) return;
  own = Progress{incarnation, key.exchange};
  const std::optional<Progress>& other = is_sender ? progress.receiver : progress.sender;
  auto it = pieces_.lower_bound({.exchange = {}, .pair = key.pair});
  while (it != pieces_.end() && it->first.pair == key.pair && it->first.exchange < key.exchange) {
    Piece& piece = it->second;
    if (!piece.is_over()) {
      if (is_sender) DropValues(*key.pair, piece);
      DropSide(worker, is_sender ? piece.sender : piece.receiver);
    }
    const bool is_done = piece.is_over() ? other && it->first.exchange < other->exchange
                                         : !piece.sender && !piece.receiver;
    it = is_done ? Erase(it) : std::next(it);
  }
}

absl::Status MessageTable::Judge(const ExchangeKey& key,
                                 const Piece& piece,
                                 const MembershipView& membership) const {
  const MessagePair& pair = *key.pair;
  if (piece.sender && piece.receiver) {
    const ExchangeSpec& sent = piece.sender->spec;
    const ExchangeSpec& wanted = piece.receiver->spec;
    if (wanted.takes_any || wanted == sent) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(MessageName(key),
                                                   ": ",
                                                   ToString(pair.from),
                                                   " sends ",
                                                   ValuesText(sent),
                                                   ", ",
                                                   ToString(pair.to),
                                                   " expects ",
                                                   ValuesText(wanted)));
  }
  const WorkerId missing = piece.sender ? pair.to : pair.from;
  if (!IsRequired(missing, key.exchange.step, membership)) {
    return absl::NotFoundError(
        absl::StrCat(MessageName(key),
                     ": ",
                     ToString(missing),
                     " is not among the workers of this step: it has left or died, or has not "
                     "joined yet"));
  }
  const auto progress = progress_.find(pair);
  if (piece.sender || progress == progress_.end() || !progress->second.sender)
    return absl::OkStatus();
  const ExchangeId& reached = progress->second.sender->exchange;
  if (reached <= key.exchange) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(MessageName(key),
                   ": ",
                   ToString(missing),
                   " sends message ",
                   reached.sequence,
                   " of step ",
                   reached.step.value(),
                   " instead: both make as many calls in each step, in the same order"));
}

void MessageTable::SettlePiece(const ExchangeKey& key,
                               Piece& piece,
                               const MembershipView& membership,
                               std::vector<MessageReply>& replies) {
  if (!piece.is_over()) {
    piece.failure = Judge(key, piece, membership);
    if (piece.is_over()) End(key, piece);
  }
  const auto answer = [&](std::optional<Side>& side, std::shared_ptr<const SentPiece> values) {
    if (!side || !side->waiter) return;
    replies.push_back({*std::exchange(side->waiter, std::nullopt), piece.failure, values});
  };
  if (piece.is_over()) {
    answer(piece.sender, nullptr);
    answer(piece.receiver, nullptr);
  } else if (piece.sent != nullptr) {
    answer(piece.receiver, piece.sent);
  }
}

std::vector<MessageReply> MessageTable::Settle(const ExchangeKey& key,
                                               const MembershipView& membership,
                                               IsOpen is_open) {
  std::vector<MessageReply> replies;
  const auto settle = [&](Pieces::iterator it) {
    if (is_open(it->second.shard)) SettlePiece(it->first, it->second, membership, replies);
  };
  const auto end = pieces_.lower_bound({.exchange = key.exchange, .pair = key.pair});
  for (auto it = pieces_.lower_bound({.exchange = {}, .pair = key.pair}); it != end; ++it)
    settle(it);
  if (const auto it = pieces_.find(key); it != pieces_.end()) settle(it);
  return replies;
}

std::vector<MessageReply> MessageTable::SettleAll(const MembershipView& membership,
                                                  IsOpen is_open) {
  std::vector<MessageReply> replies;
  for (auto& [key, piece] : pieces_)
    if (is_open(piece.shard)) SettlePiece(key, piece, membership, replies);
  return replies;
}

void MessageTable::OnView(const MembershipView& membership) {
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    const ExchangeKey& key = it->first;
    Piece& piece = it->second;
    const auto is_gone = [&](WorkerId worker, const std::optional<Side>& side) {
      return side && !membership.IsMember(worker, side->incarnation, key.exchange.step);
    };
    if (is_gone(key.pair->from, piece.sender)) {
      DropValues(*key.pair, piece);
      DropSide(key.pair->from, piece.sender);
    }
    if (is_gone(key.pair->to, piece.receiver)) DropSide(key.pair->to, piece.receiver);
    it = piece.sender || piece.receiver ? std::next(it) : Erase(it);
  }
  for (auto& [pair, progress] : progress_) {
    const auto forget = [&](WorkerId worker, std::optional<Progress>& of) {
      if (of && !membership.IsMember(worker, of->incarnation, of->exchange.step)) of.reset();
    };
    forget(pair.from, progress.sender);
    forget(pair.to, progress.receiver);
  }
  std::erase_if(progress_,
                [](const auto& entry) { return !entry.second.sender && !entry.second.receiver; });
}

std::vector<ExchangeWaiter> MessageTable::DropShard(ShardId shard) {
  std::vector<ExchangeWaiter> dropped;
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    if (it->second.shard != shard) {
      ++it;
      continue;
    }
    for (const std::optional<Side>* side : {&it->second.sender, &it->second.receiver})
      if (*side && (*side)->waiter) dropped.push_back(*(*side)->waiter);
    it = Erase(it);
  }
  return dropped;
}

void MessageTable::DropConnection(const Connection& connection) {
  for (auto& [key, piece] : pieces_) {
    for (std::optional<Side>* side : {&piece.sender, &piece.receiver}) {
      if (*side && (*side)->waiter && (*side)->waiter->connection == &connection)
        (*side)->waiter.reset();
    }
  }
}

void MessageTable::OnVersion(Step version) {
  const auto is_over = [&](const ExchangeId& exchange) {
    return exchange.step.value() + 2 <= version.value();
  };
  for (auto it = pieces_.begin(); it != pieces_.end();)
    it = is_over(it->first.exchange) ? Erase(it) : std::next(it);
  std::erase_if(progress_, [&](const auto& entry) {
    const auto& [sender, receiver] = entry.second;
    return (!sender || is_over(sender->exchange)) && (!receiver || is_over(receiver->exchange));
  });
}

void MessageTable::End(const ExchangeKey& key, Piece& piece) {
  DropValues(*key.pair, piece);
  highest_ended_ = std::max(highest_ended_.value_or(Step{}), key.exchange.step);
}

void MessageTable::DropValues(const MessagePair& pair, Piece& piece) {
  if (piece.sent == nullptr) return;
  const uint64_t bytes = piece.sent->values.num_bytes();
  piece.sender->charged -= bytes;
  charges_.Remove(pair.from, bytes);
  piece.sent.reset();
}

void MessageTable::DropSide(WorkerId worker, std::optional<Side>& side) {
  if (!side) return;
  charges_.Remove(worker, side->charged);
  side.reset();
}

MessageTable::Pieces::iterator MessageTable::Erase(Pieces::iterator piece) {
  DropSide(piece->first.pair->from, piece->second.sender);
  DropSide(piece->first.pair->to, piece->second.receiver);
  return pieces_.erase(piece);
}

}  // namespace pushpull
