// SPDX-License-Identifier: Apache-2.0
//
// Ring and halving-doubling: Thakur, Rabenseifner, Gropp, "Optimization of collective communication
// operations in MPICH", International Journal of High Performance Computing Applications 19 (2005).
// Differs: pieces stay in place, and rank i ends with piece i.
#include "runtime/collective/schedule.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/check.h"

namespace pushpull {
namespace {

constexpr std::array<std::pair<Collective, const char*>, 4> kCollectives = {
    {{Collective::kAllReduce, "all-reduce"},
     {Collective::kReduceScatter, "reduce-scatter"},
     {Collective::kAllGather, "all-gather"},
     {Collective::kBroadcast, "broadcast"}}};

constexpr std::array<std::pair<Algorithm, const char*>, 8> kAlgorithms = {
    {{Algorithm::kAuto, "auto"},
     {Algorithm::kRing, "ring"},
     {Algorithm::kBidirectionalRing, "bidirectional-ring"},
     {Algorithm::kTree, "tree"},
     {Algorithm::kHalvingDoubling, "halving-doubling"},
     {Algorithm::kRoot, "root"},
     {Algorithm::kHost, "host"},
     {Algorithm::kSplit, "split"}}};

template <typename Names, typename Value>
std::string NameOf(const Names& names, Value value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return absl::StrCat("unknown ", static_cast<unsigned>(value));
}

template <typename Value, typename Names>
absl::StatusOr<Value> ValueOf(const Names& names, absl::string_view text) {
  std::vector<absl::string_view> all;
  for (const auto& [value, name] : names) {
    if (text == name) return value;
    all.push_back(name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("must be one of ", absl::StrJoin(all, ", "), ", is \"", text, "\""));
}

bool UsesScratch(OpKind kind) {
  return kind == OpKind::kReceiveScratch || kind == OpKind::kScratchReduce || kind == OpKind::kFold;
}

bool UsesValues(OpKind kind) {
  return kind != OpKind::kReceiveScratch && kind != OpKind::kScratchReduce;
}

ElementRange Common(const ElementRange& a, const ElementRange& b) {
  const uint64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

bool Conflicts(const ScheduleOp& a, const ScheduleOp& b) {
  if (a.kind == OpKind::kSend && b.kind == OpKind::kSend) return false;
  const bool share_array =
      (UsesScratch(a.kind) && UsesScratch(b.kind)) || (UsesValues(a.kind) && UsesValues(b.kind));
  return share_array && Common(a.range, b.range).size() > 0;
}

// The operations, from `first` on, that `op` must stay behind, except those that are implied by
// others among them.
std::vector<uint32_t> Predecessors(const std::vector<ScheduleOp>& ops,
                                   size_t first,
                                   const ScheduleOp& op) {
  std::vector<uint32_t> after;
  for (size_t i = ops.size(); i-- > first;) {
    if (!Conflicts(ops[i], op)) continue;
    const ElementRange common = Common(ops[i].range, op.range);
    const bool is_implied = std::any_of(after.begin(), after.end(), [&](uint32_t later) {
      const std::vector<uint32_t>& its = ops[later].after;
      return std::find(its.begin(), its.end(), i) != its.end() &&
             Common(common, ops[later].range) == common;
    });
    if (!is_implied) after.push_back(static_cast<uint32_t>(i));
  }
  return after;
}

// Appends operations; drops those without elements, as the other end does.
class ScheduleBuilder {
 public:
  explicit ScheduleBuilder(const ScheduleRequest& request)
      : request_(request), block_{0, request.elements} {}

  RankSchedule Take() { return std::move(schedule_); }

  void Build() {
    if (request_.ranks == 1) return Finish(All());
    if (IsInBlocks()) return BuildBlocks();
    switch (request_.algorithm) {
      case Algorithm::kAuto:
        PUSHPULL_CHECK(false);
        break;
      case Algorithm::kRing:
      case Algorithm::kBidirectionalRing:
        return BuildRing();
      case Algorithm::kTree:
        return BuildTree();
      case Algorithm::kHalvingDoubling:
        return BuildHalvingDoubling();
      case Algorithm::kRoot:
        return BuildRoot();
      case Algorithm::kHost:
        return BuildHost();
      case Algorithm::kSplit:
        return BuildSplit();
    }
  }

 private:
  int ranks() const { return request_.ranks; }
  int rank() const { return request_.rank; }
  // The elements of the block that is being built.
  ElementRange All() const { return block_; }
  ElementRange Piece(int piece) const {
    const ElementRange inside = PieceOf(block_.size(), ranks(), piece);
    return {block_.begin + inside.begin, block_.begin + inside.end};
  }
  // Pieces `first` up to but not including `last`.
  ElementRange Pieces(int first, int last) const {
    return {first < ranks() ? Piece(first).begin : block_.end, Piece(last - 1).end};
  }
  int Modulo(int rank) const { return ((rank % ranks()) + ranks()) % ranks(); }

  bool Reduces() const {
    return request_.collective == Collective::kAllReduce ||
           request_.collective == Collective::kReduceScatter;
  }
  bool Gathers() const {
    return request_.collective == Collective::kAllReduce ||
           request_.collective == Collective::kAllGather;
  }

  void Add(OpKind kind, int peer, ElementRange range) {
    if (range.size() == 0) return;
    ScheduleOp op{.kind = kind, .peer = peer, .range = range};
    op.after = Predecessors(schedule_.ops, first_of_block_, op);
    schedule_.needs_scratch = schedule_.needs_scratch || UsesScratch(kind);
    schedule_.ops.push_back(std::move(op));
  }
  void Send(int peer, ElementRange range) { Add(OpKind::kSend, peer, range); }
  void Receive(int peer, ElementRange range) { Add(OpKind::kReceive, peer, range); }
  void ReceiveReduce(int peer, ElementRange range) { Add(OpKind::kReceiveReduce, peer, range); }
  void Finish(ElementRange range) {
    if (request_.needs_finish && Reduces()) Add(OpKind::kFinish, -1, range);
  }

  bool IsInBlocks() const {
    const Algorithm algorithm = request_.algorithm;
    const bool has_two_halves =
        algorithm == Algorithm::kRing || algorithm == Algorithm::kBidirectionalRing ||
        algorithm == Algorithm::kHalvingDoubling || algorithm == Algorithm::kSplit;
    return has_two_halves && request_.collective == Collective::kAllReduce &&
           request_.block_elements > 0 && request_.elements > request_.block_elements;
  }

  // Reduces a block, then gathers the previous one: its pieces have arrived by then, so no link is
  // idle between two blocks, and they are still in the cache.
  void BuildBlocks() {
    size_t first_of_previous = 0;
    ElementRange previous;
    for (uint64_t at = 0; at < request_.elements; at += request_.block_elements) {
      const size_t first = schedule_.ops.size();
      const ElementRange block = {at, std::min(at + request_.block_elements, request_.elements)};
      UseBlock(block, first);
      ReduceBlock();
      UseBlock(previous, first_of_previous);
      if (at > 0) GatherBlock();
      previous = block;
      first_of_previous = first;
    }
    UseBlock(previous, first_of_previous);
    GatherBlock();
  }
  // Operations of other blocks touch none of this one's elements.
  void UseBlock(ElementRange block, size_t first) {
    block_ = block;
    first_of_block_ = first;
  }
  void ReduceBlock() {
    if (request_.algorithm == Algorithm::kSplit) return SplitReduce();
    if (request_.algorithm == Algorithm::kHalvingDoubling) return HalvingReduce(Pairing(ranks()));
    RingReduce();
  }
  void GatherBlock() {
    if (request_.algorithm == Algorithm::kSplit) return SplitGather();
    if (request_.algorithm == Algorithm::kHalvingDoubling) return DoublingGather(Pairing(ranks()));
    RingGather();
  }

  // One of the two directions of a ring, and the part of each piece that goes around in it.
  struct Direction {
    int step;                         // 1 or -1: from a rank to the next
    uint64_t begin_share, end_share;  // of a piece, in halves
  };
  ElementRange ShareOf(ElementRange range, const Direction& direction) const {
    const auto at = [&](uint64_t halves) {
      return halves == 2 ? range.end : range.begin + halves * (range.size() / 2);
    };
    return {at(direction.begin_share), at(direction.end_share)};
  }

  std::vector<Direction> Directions() const {
    // With two ranks, both neighbours are the same rank.
    if (request_.algorithm == Algorithm::kRing || ranks() == 2) return {{1, 0, 2}};
    return {{1, 0, 1}, {-1, 1, 2}};
  }

  void BuildRing() {
    if (request_.collective == Collective::kBroadcast) return BuildChain(Directions());
    if (Reduces()) RingReduce();
    if (Gathers()) RingGather();
  }

  void RingReduce() {
    const std::vector<Direction> directions = Directions();
    for (int k = 0; k < ranks() - 1; ++k) {
      for (const Direction& one : directions) {
        const int s = one.step;
        Send(Modulo(rank() + s), ShareOf(Piece(Modulo(rank() - s * (k + 1))), one));
        ReceiveReduce(Modulo(rank() - s), ShareOf(Piece(Modulo(rank() - s * (k + 2))), one));
      }
    }
    Finish(Piece(rank()));
  }

  void RingGather() {
    const std::vector<Direction> directions = Directions();
    for (int k = 0; k < ranks() - 1; ++k) {
      for (const Direction& one : directions) {
        const int s = one.step;
        Send(Modulo(rank() + s), ShareOf(Piece(Modulo(rank() - s * k)), one));
        Receive(Modulo(rank() - s), ShareOf(Piece(Modulo(rank() - s * (k + 1))), one));
      }
    }
  }

  // A broadcast over a ring: from rank to rank, each passing on what it has received.
  void BuildChain(const std::vector<Direction>& directions) {
    for (const Direction& one : directions) {
      const int distance = Modulo((rank() - request_.root) * one.step);
      const ElementRange range = ShareOf(All(), one);
      if (distance > 0) Receive(Modulo(rank() - one.step), range);
      if (distance < ranks() - 1) Send(Modulo(rank() + one.step), range);
    }
  }

  // In the binary tree whose first place is rank `root`; child i of place k is place 2 k + i.
  int ParentIn(int root) const {
    const int place = Modulo(rank() - root);
    return place == 0 ? -1 : Modulo((place - 1) / 2 + root);
  }
  std::vector<int> ChildrenIn(int root) const {
    const int place = Modulo(rank() - root);
    std::vector<int> children;
    for (int child = 2 * place + 1; child <= 2 * place + 2 && child < ranks(); ++child)
      children.push_back(Modulo(child + root));
    return children;
  }

  void TreeReduce() {
    for (const int child : ChildrenIn(0)) ReceiveReduce(child, All());
    if (rank() != 0) {
      Send(ParentIn(0), All());
    } else {
      Finish(All());
    }
  }
  void TreeBroadcast(int root) {
    if (rank() != root) Receive(ParentIn(root), All());
    for (const int child : ChildrenIn(root)) Send(child, All());
  }

  void BuildTree() {
    switch (request_.collective) {
      case Collective::kAllReduce:
        TreeReduce();
        return TreeBroadcast(0);
      case Collective::kReduceScatter:
        TreeReduce();
        return ScatterFrom(0);
      case Collective::kAllGather:
        GatherTo(0);
        return TreeBroadcast(0);
      case Collective::kBroadcast:
        return TreeBroadcast(request_.root);
    }
  }

  void ScatterFrom(int root) {
    if (rank() != root) return Receive(root, Piece(rank()));
    for (int other = 0; other < ranks(); ++other) {
      if (other != root) Send(other, Piece(other));
    }
  }
  void GatherTo(int root) {
    if (rank() != root) return Send(root, Piece(rank()));
    for (int other = 0; other < ranks(); ++other) {
      if (other != root) Receive(other, Piece(other));
    }
  }
  void SendAllFrom(int root) {
    if (rank() != root) return Receive(root, All());
    for (int other = 0; other < ranks(); ++other) {
      if (other != root) Send(other, All());
    }
  }

  void BuildRoot() {
    if (request_.collective == Collective::kBroadcast) return SendAllFrom(request_.root);
    if (Reduces() && rank() != 0) Send(0, All());
    if (Reduces() && rank() == 0) {
      for (int other = 1; other < ranks(); ++other) ReceiveReduce(other, All());
      Finish(All());
    }
    if (request_.collective == Collective::kAllGather) GatherTo(0);
    if (request_.collective == Collective::kReduceScatter) return ScatterFrom(0);
    SendAllFrom(0);
  }

  // The other ranks, starting with the next, so that not all send to the same one first.
  std::vector<int> OthersFromNext() const {
    std::vector<int> others;
    for (int i = 1; i < ranks(); ++i) others.push_back(Modulo(rank() + i));
    return others;
  }

  // Each rank sends every other its piece, and reduces its own in the order of the ranks after it.
  void SplitReduce() {
    for (const int other : OthersFromNext()) Send(other, Piece(other));
    for (const int other : OthersFromNext()) ReceiveReduce(other, Piece(rank()));
    Finish(Piece(rank()));
  }
  void SplitGather() {
    for (const int other : OthersFromNext()) Send(other, Piece(rank()));
    for (const int other : OthersFromNext()) Receive(other, Piece(other));
  }

  void BuildSplit() {
    if (request_.collective == Collective::kBroadcast) {
      ScatterFrom(request_.root);
      return GatherFromScattered();
    }
    if (Reduces()) SplitReduce();
    if (Gathers()) SplitGather();
  }

  // After ScatterFrom, the root has all pieces and needs none.
  void GatherFromScattered() {
    for (const int other : OthersFromNext()) {
      if (other != request_.root) Send(other, Piece(rank()));
    }
    if (rank() == request_.root) return;
    for (const int other : OthersFromNext()) Receive(other, Piece(other));
  }

  // For the smallest arrays. Every rank adds in rank order, so the sum of those before this one
  // comes first, in scratch memory: this rank's own values are still being sent.
  void BuildHost() {
    if (request_.collective == Collective::kBroadcast) return SendAllFrom(request_.root);
    if (request_.collective != Collective::kAllReduce) return BuildSplit();
    for (const int other : OthersFromNext()) Send(other, All());
    for (int other = 0; other < rank(); ++other)
      Add(other == 0 ? OpKind::kReceiveScratch : OpKind::kScratchReduce, other, All());
    if (rank() > 0) Add(OpKind::kFold, -1, All());
    for (int other = rank() + 1; other < ranks(); ++other) ReceiveReduce(other, All());
    Finish(All());
  }

  // Halving-doubling needs a power of two. Each rank beyond it is the second of a pair that acts as
  // one: it hands its array to the first and gets the result from it.
  struct Pairing {
    explicit Pairing(int ranks)
        : active(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
          pairs(ranks - active) {}
    int active;  // a power of two
    int pairs;   // how many active ones, the first, are two ranks

    int FirstRankOf(int one) const { return one < pairs ? 2 * one : one + pairs; }
    bool IsSecond(int rank) const { return rank < 2 * pairs && rank % 2 == 1; }
    int ActiveOf(int rank) const { return rank < 2 * pairs ? rank / 2 : rank - pairs; }
  };

  // The pieces of the active ones from `first` up to but not including `last`; they are adjacent.
  ElementRange ActivePieces(const Pairing& pairing, int first, int last) const {
    const int end = last == pairing.active ? ranks() : pairing.FirstRankOf(last);
    return Pieces(pairing.FirstRankOf(first), end);
  }

  // Calls `step` with the active partner, and with the parts that this one and the partner keep,
  // for each distance from half of all down to 1, or in the opposite order.
  template <typename Step>
  void ForEachDistance(const Pairing& pairing, bool is_halving, Step step) {
    const int own = pairing.ActiveOf(rank());
    for (int i = 1; i < pairing.active; i *= 2) {
      const int distance = is_halving ? pairing.active / 2 / i : i;
      const int partner = own ^ distance;
      const int first = own / distance * distance;
      const int first_of_partner = partner / distance * distance;
      step(pairing.FirstRankOf(partner),
           ActivePieces(pairing, first, first + distance),
           ActivePieces(pairing, first_of_partner, first_of_partner + distance));
    }
  }

  void BuildHalvingDoubling() {
    const Pairing pairing(ranks());
    if (request_.collective == Collective::kBroadcast) {
      ScatterFrom(request_.root);
      return DoublingGather(pairing);
    }
    if (Reduces()) HalvingReduce(pairing);
    if (Gathers()) return DoublingGather(pairing);
    // The second rank of a pair gets its piece.
    if (pairing.IsSecond(rank())) return Receive(rank() - 1, Piece(rank()));
    if (HasSecond(pairing)) Send(rank() + 1, Piece(rank() + 1));
  }

  bool HasSecond(const Pairing& pairing) const { return pairing.ActiveOf(rank()) < pairing.pairs; }

  void HalvingReduce(const Pairing& pairing) {
    if (pairing.IsSecond(rank())) return Send(rank() - 1, All());
    if (HasSecond(pairing)) ReceiveReduce(rank() + 1, All());
    ForEachDistance(pairing, true, [&](int partner, ElementRange own, ElementRange others) {
      Send(partner, others);
      ReceiveReduce(partner, own);
    });
    const int own = pairing.ActiveOf(rank());
    Finish(ActivePieces(pairing, own, own + 1));
  }

  // Unless the pieces were reduced, the second rank of a pair has a piece of its own.
  void DoublingGather(const Pairing& pairing) {
    if (pairing.IsSecond(rank())) {
      if (!Reduces()) Send(rank() - 1, Piece(rank()));
      return Receive(rank() - 1, All());
    }
    if (HasSecond(pairing) && !Reduces()) Receive(rank() + 1, Piece(rank() + 1));
    ForEachDistance(pairing, false, [&](int partner, ElementRange own, ElementRange others) {
      Send(partner, own);
      Receive(partner, others);
    });
    if (HasSecond(pairing)) Send(rank() + 1, All());
  }

  const ScheduleRequest request_;
  ElementRange block_;
  size_t first_of_block_ = 0;
  RankSchedule schedule_;
};

}  // namespace

std::vector<Algorithm> AllAlgorithms() {
  std::vector<Algorithm> all;
  for (const auto& [algorithm, name] : kAlgorithms) {
    if (algorithm != Algorithm::kAuto) all.push_back(algorithm);
  }
  return all;
}

std::string ToString(Collective collective) {
  return NameOf(kCollectives, collective);
}

std::string ToString(Algorithm algorithm) {
  return NameOf(kAlgorithms, algorithm);
}

absl::StatusOr<Collective> ParseCollective(absl::string_view text) {
  return ValueOf<Collective>(kCollectives, text);
}

absl::StatusOr<Algorithm> ParseAlgorithm(absl::string_view text) {
  return ValueOf<Algorithm>(kAlgorithms, text);
}

ElementRange PieceOf(uint64_t elements, int ranks, int piece) {
  const auto count = static_cast<uint64_t>(ranks);
  const auto index = static_cast<uint64_t>(piece);
  const uint64_t size = elements / count;
  const uint64_t larger = elements % count;
  const uint64_t begin = index * size + std::min(index, larger);
  return {begin, begin + size + (index < larger ? 1 : 0)};
}

RankSchedule MakeSchedule(const ScheduleRequest& request) {
  PUSHPULL_CHECK(request.ranks >= 1 && request.rank >= 0 && request.rank < request.ranks);
  PUSHPULL_CHECK(request.root >= 0 && request.root < request.ranks);
  ScheduleBuilder builder(request);
  builder.Build();
  return builder.Take();
}

uint64_t ElementsSent(const RankSchedule& schedule) {
  uint64_t sent = 0;
  for (const ScheduleOp& op : schedule.ops) {
    if (op.kind == OpKind::kSend) sent += op.range.size();
  }
  return sent;
}

}  // namespace pushpull
