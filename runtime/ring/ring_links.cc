// SPDX-License-Identifier: Apache-2.0
#include "runtime/ring/ring_links.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// A worker that is gone is noticed by the coordinator, which then interrupts the others.
constexpr Duration kConnectTimeout = std::chrono::seconds(60);
// Between two tries: a network may need a moment to learn of a new pod, and a worker that is in the
// first stage refuses those that are in the second already.
constexpr Duration kRetryPause = std::chrono::milliseconds(50);

absl::string_view HostOfAddress(const RingWorker& worker) {
  return absl::string_view(worker.address).substr(0, worker.address.rfind(':'));
}

// One stage of a ring.
struct Stage {
  std::vector<uint32_t> ranks;  // of the ring
  // Tells the groups of a ring's stages from each other.
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
  return communicator;
}

}  // namespace

bool RingStages::has_two() const {
  return !is_one_host() &&
         absl::c_any_of(hosts, [](const std::vector<uint32_t>& ranks) { return ranks.size() > 1; });
}

size_t RingStages::HostOf(uint32_t rank) const {
  const auto host = absl::c_find_if(hosts, [&](const std::vector<uint32_t>& ranks) {
    return absl::c_linear_search(ranks, rank);
  });
  PUSHPULL_CHECK(host != hosts.end());
  return static_cast<size_t>(host - hosts.begin());
}

RingStages StagesOf(const FormRing& form) {
  RingStages stages;
  for (uint32_t rank = 0; rank < form.workers.size(); ++rank) {
    const auto host = absl::c_find_if(stages.hosts, [&](const std::vector<uint32_t>& ranks) {
      return HostOfAddress(form.workers[ranks.front()]) == HostOfAddress(form.workers[rank]);
    });
    if (host == stages.hosts.end()) {
      stages.hosts.push_back({rank});
    } else {
      host->push_back(rank);
    }
  }
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
  if (!stages.has_two()) {
    Stage all = {.channel = stages.is_one_host() ? of_host : LinkChannel::kTcp};
    for (uint32_t other = 0; other < size; ++other) all.ranks.push_back(other);
    links->is_shm_ = all.channel == LinkChannel::kShm;
    PUSHPULL_ASSIGN_OR_RETURN(links->all_, ConnectStage(end, form, all, rank));
    return links;
  }
  const size_t host = stages.HostOf(rank);
  const Stage first = {.ranks = stages.hosts[host], .channel = of_host};
  PUSHPULL_ASSIGN_OR_RETURN(links->of_host_, ConnectStage(end, form, first, rank));
  if (first.ranks.front() != rank) return links;
  Stage second = {.number = 1};
  for (const std::vector<uint32_t>& ranks : stages.hosts) second.ranks.push_back(ranks.front());
  PUSHPULL_ASSIGN_OR_RETURN(links->of_firsts_, ConnectStage(end, form, second, rank));
  return links;
}

absl::Status RingLinks::Sum(std::span<std::byte> values, const ReductionOp& op, Deadline deadline) {
  if (all_ != nullptr) return all_->AllReduce(values, op, Algorithm::kAuto, deadline);
  PUSHPULL_RETURN_IF_ERROR(of_host_->AllReduce(values, op, Algorithm::kAuto, deadline));
  if (of_firsts_ != nullptr)
    PUSHPULL_RETURN_IF_ERROR(of_firsts_->AllReduce(values, op, Algorithm::kAuto, deadline));
  return of_host_->Broadcast(values, 0, Algorithm::kAuto, deadline);
}

absl::Status RingLinks::Broadcast(std::span<std::byte> values, uint32_t source, Deadline deadline) {
  if (all_ != nullptr) return all_->Broadcast(values, source, Algorithm::kAuto, deadline);
  const size_t from = stages_.HostOf(source);
  // First to those of the source's own host, then to the first ones, then to all others.
  if (stages_.HostOf(rank_) == from) {
    const std::vector<uint32_t>& ranks = stages_.hosts[from];
    const auto place = static_cast<uint32_t>(absl::c_find(ranks, source) - ranks.begin());
    PUSHPULL_RETURN_IF_ERROR(of_host_->Broadcast(values, place, Algorithm::kAuto, deadline));
  }
  if (of_firsts_ != nullptr) {
    PUSHPULL_RETURN_IF_ERROR(
        of_firsts_->Broadcast(values, static_cast<uint32_t>(from), Algorithm::kAuto, deadline));
  }
  if (stages_.HostOf(rank_) == from) return absl::OkStatus();
  return of_host_->Broadcast(values, 0, Algorithm::kAuto, deadline);
}

uint64_t RingLinks::bytes_sent() const {
  uint64_t sent = 0;
  for (const Communicator* stage : {all_.get(), of_host_.get(), of_firsts_.get()}) {
    if (stage != nullptr) sent += stage->bytes_sent();
  }
  return sent;
}

}  // namespace pushpull
