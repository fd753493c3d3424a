// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/collective_rank.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/bench/control_socket.h"
#include "runtime/bench/raw_link.h"
#include "runtime/bench/step_values.h"
#include "runtime/collective/communicator.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {
namespace {

constexpr Duration kRankStartTimeout = std::chrono::seconds(60);
constexpr Duration kRankCallTimeout = std::chrono::seconds(120);
constexpr Duration kRankOrderTimeout = std::chrono::seconds(300);
constexpr uint32_t kBroadcastRoot = 0;

class CollectiveRank {
 public:
  // `shared`: null if arrays are private.
  CollectiveRank(Communicator& ranks, const SharedMemory* shared)
      : ranks_(ranks),
        shared_(shared),
        own_(ranks.rank(), ranks.size()),
        // The "sum" of a single worker is its own array, which is gathered and broadcast.
        whole_(0, 1) {}

  absl::StatusOr<std::vector<int64_t>> Run(const RankOrder& order) {
    PUSHPULL_RETURN_IF_ERROR(UseArray(order.bytes));
    is_right_ = true;
    used_ = order.algorithm;
    if (order.algorithm == Algorithm::kAuto) PUSHPULL_RETURN_IF_ERROR(FinishTrial(order));
    std::vector<int64_t> times;
    // The first call makes the schedule and touches the memory, so it does not count.
    PUSHPULL_RETURN_IF_ERROR(Repeat(order, 0).status());
    for (uint32_t repeat = 1; repeat < order.repeats + 1; ++repeat) {
      PUSHPULL_ASSIGN_OR_RETURN(const int64_t time, Repeat(order, repeat));
      times.push_back(time);
    }
    return times;
  }

  RankDone done() const {
    return {.bytes_sent = bytes_sent_, .is_right = is_right_ ? 1U : 0U, .used = used_};
  }

 private:
  ElementRange Piece() const {
    return PieceOf(
        values_.size(), static_cast<int>(ranks_.size()), static_cast<int>(ranks_.rank()));
  }

  absl::Status FinishTrial(const RankOrder& order) {
    for (uint32_t repeat = 0;; ++repeat) {
      PUSHPULL_RETURN_IF_ERROR(Repeat(order, repeat).status());
      const AlgorithmTrial* trial = ranks_.FindTrial(order.collective, order.bytes);
      if (trial != nullptr && !trial->is_over()) continue;
      used_ =
          trial == nullptr ? GuessFor(static_cast<int>(ranks_.size()), order.bytes) : trial->next();
      return absl::OkStatus();
    }
  }

  // Returns the call's nanoseconds.
  absl::StatusOr<int64_t> Repeat(const RankOrder& order, uint32_t repeat) {
    Fill(order.collective, repeat);
    PUSHPULL_RETURN_IF_ERROR(Barrier());
    const uint64_t sent_before = ranks_.bytes_sent();
    const int64_t begin = NanosecondsOf(CLOCK_MONOTONIC);
    PUSHPULL_RETURN_IF_ERROR(Call(order));
    const int64_t elapsed = NanosecondsOf(CLOCK_MONOTONIC) - begin;
    bytes_sent_ = ranks_.bytes_sent() - sent_before;
    Check(order.collective, repeat);
    return elapsed;
  }

  absl::Status UseArray(size_t bytes) {
    if (shared_ != nullptr) {
      values_ = std::span(reinterpret_cast<float*>(shared_->bytes().data()), bytes / sizeof(float));
      return absl::OkStatus();
    }
    // Page-aligned, as a worker's tensors are.
    PUSHPULL_ASSIGN_OR_RETURN(private_, HostBuffer::Uninitialized(bytes));
    values_ = private_.floats();
    return absl::OkStatus();
  }

  void Fill(Collective collective, uint32_t step) {
    const std::span<float> values = values_;
    switch (collective) {
      case Collective::kAllReduce:
      case Collective::kReduceScatter:
        return own_.Fill(step, 0, values);
      case Collective::kAllGather: {
        std::fill(values.begin(), values.end(), 0.0F);
        const ElementRange piece = Piece();
        return whole_.Fill(step, piece.begin, values.subspan(piece.begin, piece.size()));
      }
      case Collective::kBroadcast:
        std::fill(values.begin(), values.end(), 0.0F);
        if (ranks_.rank() == kBroadcastRoot) whole_.Fill(step, 0, values);
    }
  }

  absl::Status Call(const RankOrder& order) {
    const Deadline deadline = Deadline::After(kRankCallTimeout);
    const std::span<std::byte> bytes = std::as_writable_bytes(values_);
    switch (order.collective) {
      case Collective::kAllReduce:
        return ranks_.AllReduce(bytes, sum_, order.algorithm, deadline);
      case Collective::kReduceScatter:
        return ranks_.ReduceScatter(bytes, sum_, order.algorithm, deadline).status();
      case Collective::kAllGather:
        return ranks_.AllGather(bytes, sizeof(float), order.algorithm, deadline);
      case Collective::kBroadcast:
        return ranks_.Broadcast(bytes, kBroadcastRoot, order.algorithm, deadline);
    }
    return absl::InvalidArgumentError("an order of no collective");
  }

  absl::Status Barrier() {
    float one = 1;
    return ranks_.AllReduce(std::as_writable_bytes(std::span(&one, 1)),
                            sum_,
                            Algorithm::kTree,
                            Deadline::After(kRankCallTimeout));
  }

  void Check(Collective collective, uint32_t step) {
    const bool is_scattered = collective == Collective::kReduceScatter;
    const bool is_reduced = collective == Collective::kAllReduce || is_scattered;
    const ElementRange range = is_scattered ? Piece() : ElementRange{0, values_.size()};
    const absl::Status checked =
        (is_reduced ? own_ : whole_)
            .Check(step, range.begin, values_.subspan(range.begin, range.size()));
    if (checked.ok() || !is_right_) return;
    is_right_ = false;
    std::fprintf(stderr, "rank %u: %s\n", ranks_.rank(), std::string(checked.message()).c_str());
  }

  Communicator& ranks_;
  const SharedMemory* const shared_;
  const StepValues own_;
  const StepValues whole_;
  const ReductionOp sum_ = ReductionOp(ElementKind::kFloat32, ElementOp::kSum);
  HostBuffer private_;
  std::span<float> values_;
  uint64_t bytes_sent_ = 0;
  bool is_right_ = true;
  Algorithm used_ = Algorithm::kAuto;
};

absl::Status FollowRankOrders(Communicator& ranks,
                              const SharedMemory* shared,
                              ControlSocket& control) {
  ranks.TryAlgorithms({.collectives = {Collective::kAllReduce,
                                       Collective::kReduceScatter,
                                       Collective::kAllGather,
                                       Collective::kBroadcast}});
  CollectiveRank rank(ranks, shared);
  const auto answer = [&](const RankDone& done) {
    return control.Send(done, Deadline::After(kRankOrderTimeout));
  };
  PUSHPULL_RETURN_IF_ERROR(answer({.bytes_sent = 0, .is_right = 1}));  // it is connected
  while (true) {
    PUSHPULL_ASSIGN_OR_RETURN(const RankOrder order,
                              control.Receive<RankOrder>(Deadline::After(kRankOrderTimeout)));
    if (order.kind == RankOrderKind::kLeave) return absl::OkStatus();
    PUSHPULL_ASSIGN_OR_RETURN(const std::vector<int64_t> times, rank.Run(order));
    PUSHPULL_RETURN_IF_ERROR(
        control.Send(std::span<const int64_t>(times), Deadline::After(kRankOrderTimeout)));
    PUSHPULL_RETURN_IF_ERROR(answer(rank.done()));
  }
}

}  // namespace

absl::Status RunCollectiveRank(const std::string& control_path,
                               uint32_t rank,
                               const std::string& address) {
  const Deadline start = Deadline::After(kRankStartTimeout);
  PUSHPULL_ASSIGN_OR_RETURN(const RankListener listener, RankListener::Listen({address, 0}));
  PUSHPULL_ASSIGN_OR_RETURN(ControlSocket control, ControlSocket::Connect(control_path));
  PUSHPULL_RETURN_IF_ERROR(control.Send(RankPort{rank, listener.port()}, start));
  PUSHPULL_ASSIGN_OR_RETURN(const RankPlan plan, control.Receive<RankPlan>(start));
  MeshOptions options = {.rank = rank, .group = plan.group, .channel = plan.channel};
  for (uint32_t i = 0; i < plan.ranks && i < kRanksMax; ++i)
    options.addresses.push_back({plan.addresses[i].data(), plan.ports[i]});
  if (plan.shared_bytes > 0) {
    PUSHPULL_ASSIGN_OR_RETURN(options.arrays,
                              SharedMemory::Create("pushpull-bench", plan.shared_bytes));
  }
  PUSHPULL_ASSIGN_OR_RETURN(LinkSet links, ConnectRanks(listener, options, start));
  Communicator ranks(rank, std::move(links));
  return FollowRankOrders(ranks, options.arrays.get(), control);
}

}  // namespace pushpull
