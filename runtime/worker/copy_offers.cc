// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/copy_offers.h"

#include <algorithm>
#include <utility>

#include "runtime/transport/frame.h"

namespace pushpull {

std::vector<ChunkCopy> CopyOffers::CopiesOf(ShardId shard) {
  std::vector<ChunkCopy> copies;
  for (const ClientChunk& chunk : chunks_.chunks()) {
    if (chunk.shard != shard) continue;
    const ChunkId id = chunks_.IdOf(chunk);
    offers_.erase(id);
    ChunkCopy copy{.chunk = id, .known = chunk.version};
    if (const auto& held = copies_.Find(id.value())) {
      copy.kind = ChunkCopy::Kind::kComplete;
      copy.version = held->version;
      copy.checksum = ChecksumPayload(held->value);
    } else if (chunk.push && chunk.push->type == FrameType::kInit) {
      copy.kind = ChunkCopy::Kind::kInitial;
    }
    copies.push_back(copy);
  }
  return copies;
}

void CopyOffers::Offer(const OfferCopies& order) {
  const bool is_known = order.entry.epoch <= routes_.EpochOf(order.shard);
  if (!order.entry.primary || is_known) return;
  for (const ChunkId chunk : order.chunks) {
    if (chunks_.Find(chunk) == nullptr) continue;
    CopyOffer& offer = offers_[chunk];
    offer = {.epoch = order.entry.epoch, .primary = *order.entry.primary};
    Send(chunk, offer);
  }
}

bool CopyOffers::MayBeNeeded() const {
  return !offers_.empty() || std::ranges::any_of(chunks_.chunks(), [&](const ClientChunk& chunk) {
    return routes_.IsLost(chunk.shard);
  });
}

bool CopyOffers::IsOffered(ChunkId chunk, Epoch epoch) const {
  const auto offer = offers_.find(chunk);
  return offer != offers_.end() && offer->second.epoch == epoch;
}

void CopyOffers::RemoveDone() {
  std::erase_if(offers_, [&](const auto& offer) {
    return routes_.EpochOf(chunks_.Find(offer.first)->shard) >= offer.second.epoch;
  });
}

void CopyOffers::Resend(ChunkId chunk) {
  const auto offer = offers_.find(chunk);
  if (offer != offers_.end()) Send(chunk, offer->second);
}

void CopyOffers::ResendOver(const LaneLink& link) {
  for (auto& [chunk, offer] : offers_) {
    if (LinkOf(chunk, offer) == &link) Send(chunk, offer);
  }
}

void CopyOffers::ResendLost(Duration age) {
  for (auto& [chunk, offer] : offers_) {
    LaneLink* link = LinkOf(chunk, offer);
    const bool may_be_lost =
        link != nullptr && link->channel() != nullptr && !link->channel()->is_reliable();
    if (may_be_lost && executor_.Now() - offer.sent >= age) Send(chunk, offer);
  }
}

LaneLink* CopyOffers::LinkOf(ChunkId chunk, const CopyOffer& offer) {
  return routes_.To(offer.primary, chunks_.Find(chunk)->shard);
}

void CopyOffers::Send(ChunkId chunk, CopyOffer& offer) {
  LaneLink* link = LinkOf(chunk, offer);
  const auto& copy = copies_.Find(chunk.value());
  offer.sent = executor_.Now();
  if (link == nullptr || link->channel() == nullptr || !copy) return;  // when the link is up
  const uint8_t flags = copy->has_gradient ? 0 : kFlagNoGradient;
  link->channel()->Send({.header = {.type = FrameType::kReturnCopy,
                                    .flags = flags,
                                    .dtype = chunks_.Find(chunk)->dtype,
                                    .worker = hello_.worker,
                                    .incarnation = hello_.incarnation,
                                    .epoch = offer.epoch,
                                    .chunk = chunk,
                                    .step = copy->version},
                         .meta = {},
                         .payload = {copy->value, nullptr}});
}

}  // namespace pushpull
