// SPDX-License-Identifier: Apache-2.0
#include "runtime/ring/ring_links.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/collective/schedule.h"

namespace pushpull {
namespace {

// The coordinator notices when a worker is gone, and then interrupts the others.
constexpr Duration kConnectTimeout = std::chrono::seconds(60);
// Between two attempts: a network may need a moment to learn of a new pod, and a worker in the
// first stage refuses those that are already in the second.
constexpr Duration kRetryPause = std::chrono::milliseconds(50);

constexpr uint64_t kTriedBytesMin = kFewSendsBytesMax + 1;

absl::string_view HostOfAddress(const RingWorker& worker) {
  return absl::string_view(worker.address).substr(0, worker.address.rfind(':'));
}

// One stage of a ring.
struct Stage {
  std::vector<uint32_t> ranks;  // of the ring
  // Distinguishes the groups of a ring's stages.
  uint64_t number = 0;
  LinkChannel channel = LinkChannel::kTcp;
};

absl::StatusOr<std::unique_ptr<Communicator>> ConnectStage(const RingEnd& end,
                                                           const FormRing& form,
                                                           const Stage& stage,
                                                           uint32_t rank) {
  const auto place = absl::c_find(stage.ranks, rank);
  PUSHPULL_CHECK(place != stage.ranks.end());
  const auto check_peer = [&](uint32_t of_stage, const PeerIdentity& peer) {
    return peer.CheckIs(ToString(form.workers[stage.ranks[of_stage]].worker));
  };
  MeshOptions options = {.rank = static_cast<uint32_t>(place - stage.ranks.begin()),
                         .addresses = {},
                         .group = {form.token[0] + stage.number, form.token[1]},
                         .channel = stage.channel,
                         .arrays = end.arrays,
                         .interrupt = &end.interrupt,
                         .retry_pause = kRetryPause,
                         .tls = stage.channel == LinkChannel::kTcp ? end.tls : nullptr,
                         .check_peer = check_peer};
  for (const uint32_t other : stage.ranks) {
    PUSHPULL_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(form.workers[other].address));
    options.addresses.push_back(std::move(address));
  }
  PUSHPULL_ASSIGN_OR_RETURN(LinkSet links,
                            ConnectRanks(end.listener, options, Deadline::After(kConnectTimeout)));
  auto communicator = std::make_unique<Communicator>(options.rank, std::move(links));
  communicator->UseInterrupt(end.interrupt);
  // Neither the few values with which ranks of unequal speed begin a step, nor what brings results
  // back, which some ranks begin later than others.
  if (end.tries_algorithms) {
    communicator->TryAlgorithms(
        {.collectives = {Collective::kAllReduce, Collective::kReduceScatter},
         .bytes_min = kTriedBytesMin});
  }
  return communicator;
}

// Groups the ranks with equal keys; a key is a string_view.
template <typename Key>
RankGroups GroupBy(std::span<const uint32_t> ranks, const Key& key_of) {
  RankGroups made;
  for (const uint32_t rank : ranks) {
    const auto group = absl::c_find_if(made.groups, [&](const std::vector<uint32_t>& others) {
      return key_of(others.front()) == key_of(rank);
    });
    if (group == made.groups.end()) {
      made.groups.push_back({rank});
    } else {
      group->push_back(rank);
    }
  }
  return made;
}

}  // namespace

bool RankGroups::are_a_stage() const {
  return groups.size() > 1 && absl::c_any_of(groups, [](const std::vector<uint32_t>& ranks) {
           return ranks.size() > 1;
         });
}

bool RankGroups::are_equally_large() const {
  return absl::c_all_of(groups, [this](const std::vector<uint32_t>& ranks) {
    return ranks.size() == groups.front().size();
  });
}

size_t RankGroups::Find(uint32_t rank) const {
  const auto group = absl::c_find_if(groups, [&](const std::vector<uint32_t>& ranks) {
    return absl::c_linear_search(ranks, rank);
  });
  PUSHPULL_CHECK(group != groups.end());
  return static_cast<size_t>(group - groups.begin());
}

uint32_t RankGroups::PlaceOf(uint32_t rank) const {
  const std::vector<uint32_t>& ranks = Of(rank);
  return static_cast<uint32_t>(absl::c_find(ranks, rank) - ranks.begin());
}

bool RingStages::GoesOn(uint32_t rank) const {
  return !hosts.are_a_stage() || hosts.PlaceOf(rank) == 0;
}

std::vector<uint32_t> RingStages::LastOf(uint32_t rank) const {
  if (!GoesOn(rank)) return {};
  if (!has_racks()) {
    std::vector<uint32_t> all;
    for (const std::vector<uint32_t>& ranks : racks.groups)
      all.insert(all.end(), ranks.begin(), ranks.end());
    absl::c_sort(all);
    return all;
  }
  const uint32_t place = racks.PlaceOf(rank);
  if (place > 0 && !are_racks_split()) return {};
  std::vector<uint32_t> peers;
  for (const std::vector<uint32_t>& ranks : racks.groups) peers.push_back(ranks[place]);
  return peers;
}

RingStages StagesOf(const FormRing& form) {
  RingStages stages;
  std::vector<uint32_t> all(form.workers.size());
  absl::c_iota(all, 0U);
  stages.hosts = GroupBy(all, [&](uint32_t rank) { return HostOfAddress(form.workers[rank]); });
  std::erase_if(all, [&](uint32_t rank) { return !stages.GoesOn(rank); });
  const bool are_known =
      absl::c_none_of(all, [&](uint32_t rank) { return form.workers[rank].rack.empty(); });
  stages.racks = GroupBy(all, [&](uint32_t rank) {
    return are_known ? absl::string_view(form.workers[rank].rack) : absl::string_view();
  });
  return stages;
}

absl::StatusOr<std::unique_ptr<RingLinks>> RingLinks::Connect(const RingEnd& end,
                                                              const FormRing& form) {
  const auto own =
      absl::c_find_if(form.workers, [&](const RingWorker& it) { return it.worker == end.self; });
  if (own == form.workers.end() || form.source >= form.workers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring ", ToString(form.epoch), " has no place for ", ToString(end.self)));
  }
  const auto rank = static_cast<uint32_t>(own - form.workers.begin());
  const auto size = static_cast<uint32_t>(form.workers.size());
  std::unique_ptr<RingLinks> links(new RingLinks(rank, size, StagesOf(form)));
  const RingStages& stages = links->stages_;
  const LinkChannel of_host =
      end.has_shm && end.tls == nullptr ? LinkChannel::kShm : LinkChannel::kTcp;
  if (stages.hosts.are_a_stage()) {
    const Stage stage = {.ranks = stages.hosts.Of(rank), .number = 0, .channel = of_host};
    PUSHPULL_ASSIGN_OR_RETURN(links->of_host_, ConnectStage(end, form, stage, rank));
    if (!stages.GoesOn(rank)) return links;
  }
  if (stages.has_racks()) {
    const Stage stage = {.ranks = stages.racks.Of(rank), .number = 1};
    PUSHPULL_ASSIGN_OR_RETURN(links->of_rack_, ConnectStage(end, form, stage, rank));
  }
  const Stage last = {.ranks = stages.LastOf(rank),
                      .number = 2,
                      .channel = stages.is_one_host() ? of_host : LinkChannel::kTcp};
  if (last.ranks.empty()) return links;
  links->is_shm_ = last.channel == LinkChannel::kShm;
  PUSHPULL_ASSIGN_OR_RETURN(links->last_, ConnectStage(end, form, last, rank));
  return links;
}

absl::Status RingLinks::Reduce(std::span<std::byte> values,
                               const ReductionOp& op,
                               Deadline deadline) {
  if (of_host_ == nullptr) return ReduceOverRacks(values, op, deadline);
  PUSHPULL_RETURN_IF_ERROR(of_host_->AllReduce(values, op, Algorithm::kAuto, deadline));
  if (stages_.GoesOn(rank_)) PUSHPULL_RETURN_IF_ERROR(ReduceOverRacks(values, op, deadline));
  return of_host_->Broadcast(values, 0, Algorithm::kAuto, deadline);
}

absl::Status RingLinks::ReduceOverRacks(std::span<std::byte> values,
                                        const ReductionOp& op,
                                        Deadline deadline) {
  if (of_rack_ == nullptr) return last_->AllReduce(values, op, Algorithm::kAuto, deadline);
  if (!stages_.are_racks_split()) {
    PUSHPULL_RETURN_IF_ERROR(of_rack_->AllReduce(values, op, Algorithm::kAuto, deadline));
    if (last_ != nullptr)
      PUSHPULL_RETURN_IF_ERROR(last_->AllReduce(values, op, Algorithm::kAuto, deadline));
    return of_rack_->Broadcast(values, 0, Algorithm::kAuto, deadline);
  }
  PUSHPULL_ASSIGN_OR_RETURN(const ElementRange own,
                            of_rack_->ReduceScatter(values, op, Algorithm::kAuto, deadline));
  const size_t bytes = op.element_bytes();
  PUSHPULL_RETURN_IF_ERROR(last_->AllReduce(
      values.subspan(own.begin * bytes, own.size() * bytes), op, Algorithm::kAuto, deadline));
  return of_rack_->AllGather(values, bytes, Algorithm::kAuto, deadline);
}

absl::Status RingLinks::Broadcast(std::span<std::byte> values, uint32_t source, Deadline deadline) {
  if (of_host_ == nullptr) return BroadcastOverRacks(values, source, deadline);
  // First to the workers on the source's host, then to the first worker of each host, then to all
  // others.
  const std::vector<uint32_t>& of_source = stages_.hosts.Of(source);
  const bool is_there = stages_.hosts.Find(rank_) == stages_.hosts.Find(source);
  if (is_there) {
    PUSHPULL_RETURN_IF_ERROR(
        of_host_->Broadcast(values, stages_.hosts.PlaceOf(source), Algorithm::kAuto, deadline));
  }
  if (stages_.GoesOn(rank_))
    PUSHPULL_RETURN_IF_ERROR(BroadcastOverRacks(values, of_source.front(), deadline));
  if (is_there) return absl::OkStatus();
  return of_host_->Broadcast(values, 0, Algorithm::kAuto, deadline);
}

absl::Status RingLinks::BroadcastOverRacks(std::span<std::byte> values,
                                           uint32_t source,
                                           Deadline deadline) {
  const RankGroups& racks = stages_.racks;
  if (of_rack_ == nullptr) {
    const std::vector<uint32_t> all = stages_.LastOf(rank_);
    const auto root = static_cast<uint32_t>(absl::c_find(all, source) - all.begin());
    return last_->Broadcast(values, root, Algorithm::kAuto, deadline);
  }
  // Likewise with racks.
  const auto rack = static_cast<uint32_t>(racks.Find(source));
  const bool is_there = racks.Find(rank_) == rack;
  if (is_there) {
    PUSHPULL_RETURN_IF_ERROR(
        of_rack_->Broadcast(values, racks.PlaceOf(source), Algorithm::kAuto, deadline));
  }
  if (!stages_.are_racks_split()) {
    if (last_ != nullptr)
      PUSHPULL_RETURN_IF_ERROR(last_->Broadcast(values, rack, Algorithm::kAuto, deadline));
    return is_there ? absl::OkStatus() : of_rack_->Broadcast(values, 0, Algorithm::kAuto, deadline);
  }
  const ElementRange own = PieceOf(
      values.size(), static_cast<int>(of_rack_->size()), static_cast<int>(racks.PlaceOf(rank_)));
  PUSHPULL_RETURN_IF_ERROR(
      last_->Broadcast(values.subspan(own.begin, own.size()), rack, Algorithm::kAuto, deadline));
  return is_there ? absl::OkStatus() : of_rack_->AllGather(values, 1, Algorithm::kAuto, deadline);
}

std::vector<EndedRingTrial> RingLinks::TakeEndedTrials() {
  std::vector<EndedRingTrial> ended;
  const auto take = [&](const std::unique_ptr<Communicator>& links, absl::string_view stage) {
    if (links == nullptr) return;
    for (EndedTrial& trial : links->TakeEndedTrials())
      ended.push_back({std::string(stage), std::move(trial)});
  };
  take(of_host_, "host");
  take(of_rack_, "rack");
  take(last_, "ring");
  return ended;
}

uint64_t RingLinks::bytes_sent() const {
  uint64_t sent = 0;
  for (const Communicator* stage : {of_host_.get(), of_rack_.get(), last_.get()}) {
    if (stage != nullptr) sent += stage->bytes_sent();
  }
  return sent;
}

}  // namespace pushpull
